"""Where there is no Apache Kafka, its tests say in one line how to get one; that is a skip."""

from pathlib import Path

import pytest

from tests.interop import jars


def test_a_kafka_home_that_holds_none_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    with pytest.raises(jars.KafkaNotFoundError, match=f"KAFKA_HOME is {tmp_path}"):
        jars.class_path.__wrapped__()


def test_without_it_and_without_maven_both_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(jars, "cache_directory", lambda: tmp_path)
    with pytest.raises(jars.KafkaNotFoundError) as missing:
        jars.class_path.__wrapped__()
    assert str(missing.value) == (
        "Apache Kafka is not here: set KAFKA_HOME to one, or install Maven (`mvn`)"
    )


def test_a_maven_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho '[ERROR] nobody answers'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(jars, "cache_directory", lambda: tmp_path)
    with pytest.raises(jars.KafkaNotFoundError, match=r"Maven says .*nobody answers"):
        jars.class_path.__wrapped__()
