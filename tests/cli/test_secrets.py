"""Only its owner can read a password that a cluster is given."""

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from replication.cli.isolated import write_private
from replication.cli.options import hide_in_arguments, secrets_of
from tests.cli.test_up import TIMEOUT, running, table_of
from tests.deep import one_in

SECRET = "hunter2-hunter2"
PROC = Path("/proc")
linux = pytest.mark.skipif(not (PROC / "self/mem").exists(), reason="needs /proc")


@pytest.mark.parametrize(
    "key",
    [
        "ssl.key.password",
        "listener.name.outside.ssl.keystore.key",
        "sasl.jaas.config",
        "listener.name.inside.plain.sasl.jaas.config",
        "understudy.add.scram",
        "password.encoder.secret",
        "ssl.truststore.password",
    ],
)
def test_secrets_are_recognised_by_the_names_of_their_keys(key: str) -> None:
    public = {"ssl.keystore.location": "/a", "log.retention.ms": "1", "ssl.key.password ": ""}
    assert secrets_of(public | {key: SECRET}) == [SECRET]


@pytest.mark.parametrize("there_already", [False, True])
def test_a_private_file_is_its_owner_s_alone(tmp_path: Path, there_already: bool) -> None:
    path = tmp_path / "server.properties"
    if there_already:
        path.write_text("something longer than what is written now\n")
        path.chmod(0o644)
    write_private(path, "a=b\n")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("a=b\n", 0o600)


def test_arguments_without_secrets_are_not_changed() -> None:
    before = (PROC / "self/cmdline").read_bytes() if PROC.exists() else b""
    hide_in_arguments([])
    assert not before or (PROC / "self/cmdline").read_bytes() == before


@linux
def test_a_command_shows_no_password_in_its_arguments() -> None:
    """The command only prints the arguments that it shows."""
    code = (
        "import sys; from pathlib import Path\n"
        "from replication.cli.options import hide_in_arguments\n"
        "hide_in_arguments([sys.argv[2].partition('=')[2]])\n"
        "print(Path('/proc/self/cmdline').read_bytes().decode())\n"
    )
    command = [sys.executable, "-c", code, "-X", f"ssl.key.password={SECRET}", "--last"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    shown = said.stdout.rstrip("\n").split("\0")
    assert shown[3:] == ["-X", f"ssl.key.password={'*' * len(SECRET)}", "--last", ""]


def family_of(pid: int) -> Iterator[int]:
    """Return a process and all its descendants."""
    yield pid
    for task in (PROC / str(pid) / "task").iterdir():
        for child in (task / "children").read_text().split():
            yield from family_of(int(child))


@linux
@pytest.mark.slow
@pytest.mark.parametrize("given", one_in(2, ["file", "argument"]))
def test_no_process_of_a_cluster_shows_its_password(tmp_path: Path, given: str) -> None:
    data = tmp_path / "data"
    (data / "broker-1").mkdir(parents=True)
    (data / "broker-1" / "server.properties").touch(mode=0o644)  # of an older release
    entry = f"ssl.key.password={SECRET}"
    file = tmp_path / "cluster.properties"
    file.write_text(f"{entry}\n")
    answer = ["-X", entry] if given == "argument" else ["--config", str(file)]
    with running(
        "up", "-n", "2", "--any-port", "--isolated", "--data-dir", str(data), *answer
    ) as process:
        table_of(process, 2)
        family = list(family_of(process.pid))
        assert len(family) == 4
        for pid in family:
            for name in ("cmdline", "environ"):
                assert SECRET.encode() not in (PROC / str(pid) / name).read_bytes(), (pid, name)
        written = sorted(data.rglob("server.properties"))
        assert len(written) == 3
        for path in written:
            assert entry in path.read_text()
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        open_to_all = [
            path
            for path in data.rglob("*")
            if path.is_file() and path not in written and SECRET.encode() in path.read_bytes()
        ]
        assert open_to_all == []
        process.terminate()
        assert process.wait(TIMEOUT) == 0
    assert written[0].exists(), "it stays, to be started again by hand"
