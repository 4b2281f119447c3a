"""`understudy storage`: directories that are formatted, looked at, and refused."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from replication.cli import group
from storage.checkpoint import MetaProperties, uuid_bytes, write_meta_properties
from storage.filesystem import OsFileSystem
from storage.manager.log_directory import FORMER_METADATA_TOPIC

ALICE = "SCRAM-SHA-256=[name=alice,password=alice-secret]"


def storage(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["storage", *arguments])


def properties(directory: Path, **more: str) -> str:
    """Write the server.properties of a controller; `more` has underscores for dots."""
    keys = {
        "process.roles": "controller",
        "node.id": "7",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:19093",
        "log.dirs": f"{directory}/log",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    path = directory / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return str(path)


def refused(result: Result, said: str) -> None:
    assert result.exit_code == 1
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_standalone_controller(tmp_path: Path) -> None:
    config = properties(tmp_path)
    done = storage("format", "-c", config, "-t", "cluster", "--standalone", "-S", ALICE)
    assert done.exit_code == 0
    assert "Formatting dynamic metadata voter directory" in done.stdout
    assert "alice-secret" not in done.output
    said = storage("info", "-c", config)
    assert said.exit_code == 0
    assert said.stdout.startswith(f"Found log directory:\n  {tmp_path}/log\n\nFound metadata: {{")
    assert "cluster.id=cluster, directory.id=" in said.stdout
    refused(storage("format", "-c", config, "-t", "cluster", "-s"), "is already formatted. Use")
    again = storage("format", "-c", config, "-t", "cluster", "-s", "--ignore-formatted")
    assert again.stdout == "All of the log directories are already formatted.\n"
    other = storage("format", "-c", config, "-t", "other", "-s", "--ignore-formatted")
    refused(other, "Expected other, but read cluster")


def test_a_broker_with_several_directories(tmp_path: Path) -> None:
    config = properties(
        tmp_path,
        process_roles="broker",
        listeners="PLAINTEXT://127.0.0.1:0",
        log_dirs=f"{tmp_path}/a,{tmp_path}/b",
        controller_quorum_bootstrap_servers="127.0.0.1:1",
    )
    assert storage("format", "-c", config, "-t", "c").exit_code == 0
    assert storage("info", "-c", config).stdout.splitlines()[:3] == [
        "Found log directories:",
        f"  {tmp_path}/a",
        f"  {tmp_path}/b",
    ]
    owner = MetaProperties(cluster_id="c", node_id=8)
    write_meta_properties(OsFileSystem(), f"{tmp_path}/b", owner)
    said = storage("info", "-c", config)
    assert said.exit_code == 1
    assert "Found problem:\n  Mismatched node IDs between storage directories." in said.stdout


def test_what_is_not_formatted_is_a_problem(tmp_path: Path) -> None:
    config = properties(tmp_path, log_dirs=f"{tmp_path}/a,{tmp_path}/b,{tmp_path}/c,{tmp_path}/d")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").touch()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "meta.properties").write_text("version=9\n")
    said = storage("info", "-c", config)
    assert said.exit_code == 1
    assert said.stdout.splitlines()[-6:-1] == [
        "Found problems:",
        f"  {tmp_path}/a is not formatted.",
        f"  {tmp_path}/b is not a directory",
        f"  {tmp_path}/c does not exist",
        f"  Error loading {tmp_path}/d/meta.properties: version 9 is not one we know (0 or 1)",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-t c", "must specify one of the following: --standalone, --initial-controllers"),
        ("-t c -s -r 9.9", "Unknown metadata.version '9.9'"),
        ("-t c -s -f group.version=9", "No feature:group.version with feature level 9"),
        ("-t c -I 7@h:1", "expected id@host:port:directory instead of '7@h:1'"),
        ("-t c -s -S SCRAM-SHA-256=[name=alice]", "add-scram: expected"),
        ("-t c -s -S SCRAM-SHA-256=[name=a,saltedpassword=AAAA]", "add-scram: expected"),
        ("-t c -s -S SCRAM-SHA-256=[name=a,password=b,salt=?]", "add-scram: expected"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    tmp_path: Path, arguments: str, said: str
) -> None:
    refused(storage("format", "-c", properties(tmp_path), *arguments.split()), said)
    assert [each.name for each in tmp_path.iterdir()] == ["server.properties"]


def test_a_cluster_id_is_not_blank(tmp_path: Path) -> None:
    for cluster_id in ("", " ", "a\nb"):
        refused(
            storage("format", "-c", properties(tmp_path), "-s", "-t", cluster_id), "--cluster-id"
        )


def test_voters_of_the_configuration_are_not_named_again(tmp_path: Path) -> None:
    config = properties(tmp_path, controller_quorum_voters="7@127.0.0.1:19093")
    refused(
        storage("format", "-c", config, "-t", "c", "-s"),
        "You cannot specify controller.quorum.voters and format the node",
    )
    assert storage("format", "-c", config, "-t", "c").exit_code == 0


def test_only_one_way_to_name_voters(tmp_path: Path) -> None:
    done = storage("format", "-c", properties(tmp_path), "-t", "c", "-s", "-N")
    assert done.exit_code == 2
    assert "only one of --standalone" in done.stderr


def test_a_salted_password_is_taken(tmp_path: Path) -> None:
    scram = "SCRAM-SHA-512=[name=a,iterations=8192,salt=N3E=,saltedpassword=YCE=]"
    done = storage("format", "-c", properties(tmp_path), "-t", "c", "-N", "-S", scram)
    assert done.exit_code == 0, done.stderr
    assert "a SCRAM credential of a" in done.stdout


def test_metadata_in_the_former_format_is_refused_by_storage_and_at_the_start(
    tmp_path: Path,
) -> None:
    config = properties(tmp_path)
    former = f"{FORMER_METADATA_TOPIC}-0"
    (tmp_path / "log" / former).mkdir(parents=True)
    said = "is the metadata log of an older release"
    refused(storage("format", "-c", config, "-t", "c", "-s"), said)
    refused(CliRunner().invoke(group, ["broker", "--config", config]), said)
    assert {each.name for each in (tmp_path / "log").iterdir()} <= {former, ".lock"}


def test_random_ids_are_ids() -> None:
    texts = {storage("random-uuid").stdout.strip() for _ in range(3)}
    assert len(texts) == 3
    assert all(len(uuid_bytes(text)) == 16 for text in texts)


def files_of(directory: Path) -> dict[str, bytes]:
    files = (each for each in directory.rglob("*") if each.is_file() and each.name != ".lock")
    return {str(each): each.read_bytes() for each in files}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("node.id=8", "node 7"),
        ("cluster.id=other", "belongs to cluster c"),
        ("version=9", "meta.properties: version 9 is not one we know"),
        ("directory.id=x", "meta.properties: directory.id: 'x' is not"),
        ("snapshot", ".checkpoint cannot be read: it is not whole"),
    ],
)
def test_a_controller_does_not_start_on_the_wrong_directory(
    tmp_path: Path, change: str, said: str
) -> None:
    voters = {"controller_quorum_voters": "7@127.0.0.1:19093"}
    config = properties(tmp_path, **voters)
    assert storage("format", "-c", config, "-t", "c").exit_code == 0
    key, _, value = change.partition("=")
    if key == "node.id":
        properties(tmp_path, node_id="8", controller_quorum_voters="8@127.0.0.1:19093")
    elif key == "cluster.id":
        properties(tmp_path, cluster_id=value, **voters)
    elif key == "snapshot":
        (snapshot,) = tmp_path.glob("log/*/*.checkpoint")
        snapshot.chmod(0o644)
        snapshot.write_bytes(snapshot.read_bytes()[:-10])
    else:
        meta = tmp_path / "log" / "meta.properties"
        lines = [each for each in meta.read_text().splitlines() if not each.startswith(key)]
        meta.write_text("\n".join([*lines, change]) + "\n")
    before = files_of(tmp_path / "log")
    refused(CliRunner().invoke(group, ["broker", "--config", config]), said)
    assert files_of(tmp_path / "log") == before
