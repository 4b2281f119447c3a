"""The understudy command in this process, against the brokers that `understudy -b` names."""

import json
from typing import Any

import attrs
from click.testing import CliRunner, Result

from replication.cli import group


@attrs.frozen
class Command:
    servers: str

    def __call__(self, *arguments: str, stdin: bytes = b"", exit_code: int = 0) -> Result:
        """How it ended; anything but a click error or an exit raises."""
        given = ["-b", self.servers, *arguments]
        done = CliRunner().invoke(group, given, input=stdin, catch_exceptions=False)
        assert done.exit_code == exit_code, (arguments, done.output)
        return done

    def lines(self, *arguments: str, stdin: bytes = b"") -> list[str]:
        return self(*arguments, stdin=stdin).stdout.splitlines()

    def json(self, *arguments: str, stdin: bytes = b"") -> Any:
        return json.loads(self(*arguments, "--output", "json", stdin=stdin).stdout)
