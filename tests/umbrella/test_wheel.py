"""The wheel and the sdist as a package index would hand them out, in environments of their own.

pip fetches uv, which builds and installs: its cache makes a further environment cheap.
"""

import email
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from replication import __version__
from replication.extras import EXTRAS
from tests.plugin.test_suites import NAMES, SUITES

pytestmark = [pytest.mark.slow, pytest.mark.deep]

ROOT = Path(__file__).parents[2]
PACKAGES = ("storage", "replication", "scenarios", "pipeline", "understudy")
ADDRESS = "https://understudy.example"
CLIENTS = ("aiokafka", "faststream[kafka,confluent]", "kafka-python", "pytest", "pytest-trio")


def without_checkout() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "COV_", "VIRTUAL_ENV")) and name != "PYTHONPATH"
    }


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env=without_checkout(),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("uv")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    command = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"pip cannot install uv: {fetched.stderr.strip().splitlines()[-1]}")
    return place / "bin" / "uv"


@pytest.fixture(scope="session")
def built(uv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the sdist, and the wheel that was built from it."""
    place = tmp_path_factory.mktemp("dist")
    run(uv, "build", "--quiet", "--out-dir", place, ROOT, cwd=ROOT)
    return place


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture
def environment(uv: Path, tmp_path: Path) -> Iterator[Path]:
    """An empty environment; its folder is large, and is deleted at the end."""
    place = tmp_path / "env"
    run(uv, "venv", "--quiet", "--python", sys.executable, place, cwd=tmp_path)
    yield place
    shutil.rmtree(place)


def install(uv: Path, environment: Path, *wanted: str) -> None:
    run(uv, "pip", "install", "--quiet", "--python", environment, *wanted, cwd=environment)


def test_the_metadata_say_who_what_and_where(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    assert (metadata["Name"], metadata["Version"]) == ("understudy", __version__)
    assert metadata["Author"]
    assert metadata["Keywords"]
    classifiers = metadata.get_all("Classifier") or []
    assert {"Framework :: Pytest", "Typing :: Typed"} <= set(classifiers)
    urls = dict(each.split(", ") for each in metadata.get_all("Project-URL") or [])
    assert urls.keys() >= {"Homepage", "Documentation", "Changelog", "Source", "Issues"}
    readme = str(metadata.get_payload())
    targets = re.findall(r"\]\(([^)]+)\)", readme)
    assert len(targets) > 30
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []
    images = re.findall(r"!\[[^]]*\]\(([^)]+)\)", readme)
    assert images
    for target in targets:
        folder, _, path = target.removeprefix(f"{ADDRESS}/").partition("/main/")
        if path:
            assert folder == ("raw" if target in images else "blob")
            assert (ROOT / path.partition("#")[0]).is_file(), target


def test_the_wheel_has_all_files_of_the_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {each for each in archive.namelist() if ".dist-info/" not in each}
    tracked = run("git", "ls-files", *PACKAGES, cwd=ROOT).split()
    further = {"pyspark_understudy.py", "replication/observe/grafana.json"}
    assert packed == {*tracked, *further} - {"pipeline/discovery.py"}, "which has another name"
    assert {f"{each}/py.typed" for each in PACKAGES} <= packed


def test_the_sdist_can_be_tested(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {each.partition("/")[2] for each in opened.getnames()}
    assert {"Makefile", "constraints.txt", "docs/index.md", "tests/conftest.py"} <= names


def test_the_wheel_alone_runs_stories_and_clusters(
    uv: Path, wheel: Path, environment: Path, tmp_path: Path
) -> None:
    install(uv, environment, str(wheel))
    python, command = environment / "bin" / "python", environment / "bin" / "understudy"
    for words in ([command], [python, "-m", "replication"], [python, "-m", "understudy"]):
        assert run(*words, "--version", cwd=tmp_path).endswith(f"version {__version__}\n")
    assert "t-0: same in 3 copies" in run(
        command, "scenario", "run", "a-leader-killed", cwd=tmp_path
    )
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "__init__.py").touch()
    source = (
        "import storage; from understudy import ThreadedCluster, __version__\n"
        "with ThreadedCluster(brokers=1) as cluster: print(cluster.brokers, __version__)"
    )
    assert run(python, "-c", source, cwd=tmp_path) == f"[1] {__version__}\n"
    failed = subprocess.run(
        [command, "up", "--any-port", "--ui", "0"],
        cwd=tmp_path,
        env=without_checkout(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1
    assert failed.stderr.count("\n") == 1
    assert f"pip install '{wheel}[http]'" in failed.stderr


# What an extra is for, after the wheel with it alone.
EXTRA = {
    "arrow": "from storage.batch.columns import arrow_columns; print('ready')",
    "delta": "import deltalake, pipeline; print('ready')",
    "demo": "from replication.cli.demo_run import Demo; print('ready')",
    "formats": "import pipeline.formats.protobuf, pipeline.formats.json_schema; print('ready')",
    "http": "from replication.observe.page import live; print('ready')",
    "iceberg": "from pyiceberg.catalog.sql import SqlCatalog; print('ready')",
    "java": "from pipeline.java import find_java; print('ready' if find_java() else '')",
    "spark": "from pipeline.session import get_session; print('ready')",
}


def test_each_extra_is_tried() -> None:
    assert EXTRA.keys() == EXTRAS.keys()


@pytest.mark.parametrize("name", sorted(EXTRA))
def test_the_wheel_with_an_extra(
    name: str, uv: Path, wheel: Path, environment: Path, tmp_path: Path
) -> None:
    install(uv, environment, f"{wheel}[{name}]")
    assert run(environment / "bin" / "python", "-c", EXTRA[name], cwd=tmp_path) == "ready\n"


IDIOMS = """
import sys
from collections.abc import Iterator

import pytest
from understudy import KafkaError, ThreadedCluster, __version__
from replication.faults import once
from replication.testing import KafkaContainer
from replication.testing.faults import ThreadedFaults


def test_of_a_project(
    kafka_cluster: ThreadedCluster, kafka_topic: str, kafka_faults: ThreadedFaults
) -> None:
    rule = kafka_faults.add(api="PRODUCE", error="NOT_LEADER_OR_FOLLOWER", trigger=once())
    assert rule.hits == 0
    leader = kafka_cluster.kill_leader(kafka_topic)
    kafka_cluster.until(lambda: kafka_cluster.leader(kafka_topic) not in (None, leader))
    kafka_cluster.start_broker(leader)
    kafka_cluster.until(lambda: len(kafka_cluster.isr(kafka_topic)) == 3)
    with pytest.raises(KafkaError) as caught:
        kafka_cluster.create_topic(kafka_topic)
    print(caught.value.code.name, __version__)


@pytest.fixture(scope="module")
def container() -> Iterator[KafkaContainer]:
    with KafkaContainer() as kafka:
        yield kafka


def test_with_a_container(container: KafkaContainer) -> None:
    assert container.get_bootstrap_server().startswith("127.0.0.1:")


def test_that_pytest_has_rewritten_nothing_of_ours(kafka_cluster: ThreadedCluster) -> None:
    ours = [each for name, each in sys.modules.items() if name.startswith(("repl", "stor", "under"))]
    loaders = {type(each.__spec__.loader).__name__ for each in ours if each.__spec__}
    assert len(ours) > 300
    assert loaders - {"SourceFileLoader"} <= {"AssertionRewritingHook"}
    rewritten = [each.__name__ for each in ours if "Rewriting" in repr(each.__spec__)]
    assert set(rewritten) <= {"understudy", "understudy.own_modules", "understudy.pytest_plugin"}
"""


def test_the_documented_idioms_run_and_pass_mypy(
    uv: Path, wheel: Path, environment: Path, tmp_path: Path
) -> None:
    install(uv, environment, str(wheel), "pytest", "mypy")
    (tmp_path / "test_idioms.py").write_text(IDIOMS)
    run(environment / "bin" / "mypy", "--strict", "test_idioms.py", cwd=tmp_path)
    run(environment / "bin" / "pytest", "-q", "test_idioms.py", cwd=tmp_path)


def test_uvx_starts_a_cluster(uv: Path, wheel: Path, tmp_path: Path) -> None:
    command = [str(uv), "tool", "run", "--from", str(wheel), "understudy", "up", "--any-port"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=without_checkout(), stdout=subprocess.PIPE, text=True
    ) as up:
        assert up.stdout is not None
        seen: list[str] = []
        for line in up.stdout:
            seen.append(line)
            if "127.0.0.1:" in line:
                break
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=60)
    assert any("127.0.0.1:" in line for line in seen), seen


@pytest.mark.client
@pytest.mark.parametrize("name", [each for each in NAMES if not each.endswith("pyspark")])
def test_a_suite_of_users_passes_with_the_wheel(
    name: str, uv: Path, wheel: Path, environment: Path, tmp_path: Path
) -> None:
    install(uv, environment, f"{wheel}[demo]", *CLIENTS)
    shutil.copytree(SUITES / name, tmp_path / name)
    output = run(environment / "bin" / "python", "-m", "pytest", "-q", name, cwd=tmp_path)
    assert " passed" in output
