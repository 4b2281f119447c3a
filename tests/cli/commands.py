"""The understudy command in this process, against the brokers that `understudy -b` names."""

import json
from typing import Any

import attrs
from click.testing import CliRunner, Result

from replication.cli import group

# A consumer that closes waits for the fetch that is under way: half a second by default.
SHORT_FETCHES = ("-X", "fetch.max.wait.ms=20")


@attrs.frozen
class Command:
    servers: str

    def __call__(self, *arguments: str, stdin: bytes = b"", exit_code: int = 0) -> Result:
        """Return the result of the command; raise what is neither a click error nor an exit."""
        given = ["-b", self.servers, *arguments]
        if arguments[0] == "consume":
            given += SHORT_FETCHES
        done = CliRunner().invoke(group, given, input=stdin, catch_exceptions=False)
        assert done.exit_code == exit_code, (arguments, done.output)
        return done

    def lines(self, *arguments: str, stdin: bytes = b"") -> list[str]:
        return self(*arguments, stdin=stdin).stdout.splitlines()

    def json(self, *arguments: str, stdin: bytes = b"") -> Any:
        return json.loads(self(*arguments, "--output", "json", stdin=stdin).stdout)
