"""`understudy follow`: the mirror's options for each flag, and the exit codes."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from replication.cli import follow as running, group
from replication.client.config import ClientConfig
from replication.mirror import MirrorOptions, UpTo


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        pytest.param("--topic t", {"topics": ("t",)}, id="a topic"),
        pytest.param(
            "--topic t --topic u --topics-matching a.*",
            {"topics": ("t", "u"), "patterns": ("a.*",)},
            id="topics and a pattern",
        ),
        pytest.param("--topic t --groups", {"topics": ("t",), "groups": True}, id="groups"),
        pytest.param(
            "--topic t --up-to hw",
            {"topics": ("t",), "up_to": UpTo.HIGH_WATERMARK},
            id="to the high watermark",
        ),
        pytest.param(
            "--topic t --up-to lso",
            {"topics": ("t",), "up_to": UpTo.LAST_STABLE},
            id="to the last stable offset",
        ),
        pytest.param(
            "--topic t --throttle 5000 --fetchers 3",
            {"topics": ("t",), "bytes_per_second": 5000, "fetchers_per_leader": 3},
            id="a throttle, and connections",
        ),
        pytest.param(
            "--topic t -X log.segment.bytes=1048576",
            {"topics": ("t",), "properties": {"log.segment.bytes": "1048576"}},
            id="a key of the broker that keeps it",
        ),
    ],
)
def test_every_flag_is_one_of_the_mirrors_options(
    flags: str, wanted: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: list[tuple[ClientConfig, MirrorOptions, str]] = []

    def follow(config: ClientConfig, options: MirrorOptions, directory: str, **_: Any) -> bool:
        answer.append((config, options, directory))
        return False

    monkeypatch.setattr(running, "follow", follow)
    secured = tmp_path / "client.properties"
    secured.write_text("security.protocol=SSL\nmetadata.max.age.ms=500\n")
    arguments = ["follow", "-b", "b1:9092,b2:9092", "--to", str(tmp_path / "copy")]
    arguments += ["--command-config", str(secured), *flags.split()]
    assert CliRunner().invoke(group, arguments).exit_code == 0
    # Interrupted before nothing was missing, where that was to be its end.
    assert CliRunner().invoke(group, [*arguments, "--until-caught-up"]).exit_code == 1
    (config, options, directory), _ = answer
    assert options == MirrorOptions(**wanted)
    assert directory == str((tmp_path / "copy").resolve())
    assert [each.port for each in config.bootstrap_servers] == [9092, 9092]
    assert (config.security_protocol, config.metadata_max_age_ms) == ("SSL", 500)
