"""What the session helper sets, and what it leaves to the user."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from pipeline import session


@pytest.mark.spark
def test_the_session_is_as_the_pipeline_needs_it(spark: Any) -> None:
    # That of the tests is a quick one.
    for name, value in session._settings("local[2]", quick=True).items():
        assert spark.conf.get(name) == value, name
    assert spark.conf.get("spark.master") == "local[2]"
    assert session.get_session(master="local[7]") is spark


@pytest.mark.spark
def test_steps_and_tasks_are_shown_on_a_terminal(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from replication.cli.pipeline import jobs

    monkeypatch.setattr(jobs, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress, shown, tasks = jobs.SparkProgress(), "", re.compile(r"\d/8\b")
    with progress.watching(spark):
        progress.step("counting")
        for _ in range(200):  # until it is looked at while one is under way
            assert spark.range(0, 1000, numPartitions=8).count() == 1000
            shown += capsys.readouterr().err
            if tasks.search(shown):
                break
    assert "counting" in shown
    assert tasks.search(shown)


def test_only_bulk_work_goes_over_unix_domain_sockets() -> None:
    assert session._settings("local[2]", quick=True)[session.SOCKETS] == "false"
    assert session._settings("local[2]", quick=False)[session.SOCKETS] == "true"
    assert session._settings("spark://b1:7077", quick=False)[session.SOCKETS] == "true"


def test_what_the_defaults_file_sets_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\nspark.ui.enabled  true\nspark.driver.extraJavaOptions=-Xss4m -Da=b\nspark.empty\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session._spark_defaults() == {
        "spark.ui.enabled": "true",
        "spark.driver.extraJavaOptions": "-Xss4m -Da=b",
        "spark.empty": "",
    }


def test_the_master_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_MASTER", "local[3]")
    # What Spark says where nobody has said anything.
    assert session._master_of({"spark.master": "local[*]"}) == "local[3]"
    assert session._master_of({"spark.master": "spark://b1:7077"}) == "spark://b1:7077"
