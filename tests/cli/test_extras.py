"""Every command without the packages of an extra: the error names the command that installs it."""

import importlib
import io
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from replication import extras
from replication.cli.demo_run import DemoOutcome, FailoverMoment, Report
from replication.cli.demo_workload import LedgerVerdict
from replication.extras import EXTRAS, PACKAGES, MissingExtraError, extra, how_to_install
from replication.verify import Comparison
from tests.cli.tree import LEAVES
from tests.docs.snippets import pages

ROOT = Path(__file__).parents[2]

# Runs each command line in a Python that finds none of the extras' packages.
WITHOUT = """
import contextlib, io, json, sys
from importlib.abc import MetaPathFinder

class Refusing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

REFUSED = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Refusing())
from replication.cli import main

for line in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(line.split())
        except SystemExit as ended:
            code = ended.code
        except BaseException as error:
            code = repr(error)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""

# Every command line that needs an extra, and the extra.
NEEDING = {
    "up --any-port --ui 0": "http",
    "up --any-port --metrics 0": "http",
    "up --any-port --control 0": "http",
    "up --any-port --isolated --ui 0": "http",
    "up --any-port --isolated --metrics 0": "http",
    "up --any-port --isolated --control 0": "http",
    "follow --to DIR/copy --topic t --metrics-port 0": "http",
    "broker --config DIR/server.properties --metrics 0": "http",
    "demo": "demo",
    "dump-log --files DIR --output arrow": "arrow",
    "audit-headers DIR --name a --to DIR/headers": "arrow",
    "pipeline audit DIR": "spark",
    "pipeline bundle DIR/bundle": "spark",
    "pipeline export DIR --to DIR/lake": "spark",
    "pipeline failover DIR": "spark",
    "pipeline lag DIR": "spark",
    "pipeline lag DIR --output lag.html": "spark",
}

# Those that need another extra beside `spark`, which is there.
BESIDE_SPARK = {
    "pipeline export DIR --to DIR/lake --format delta": "delta",
    "pipeline export DIR --to DIR/lake --format iceberg": "iceberg",
    **{
        f"pipeline export DIR --to DIR/lake -X value.format={kind} -X value.schema.id={number}"
        " -X schema.directory=DIR": "formats"
        for kind, number in (("avro", 1), ("protobuf", 2), ("json", 3))
    },
}


def run_without(refused: list[str], lines: list[str]) -> list[tuple[object, str, str]]:
    """Return the exit code and both outputs of each command line."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, ",".join(refused)],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines), done.stderr
    return [(code, out, err) for code, out, err in answers]


def test_a_missing_extra_is_one_line_with_the_command_that_installs_it(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        f"node.id=1\nlog.dirs={tmp_path}/log\nlisteners=PLAINTEXT://127.0.0.1:0\n"
        "controller.quorum.voters=0@127.0.0.1:1\n"
    )
    everything = sorted({module for modules in EXTRAS.values() for module in modules})
    check_refused(everything, NEEDING, tmp_path)


@pytest.mark.parametrize("name", sorted(set(BESIDE_SPARK.values())))
def test_an_extra_that_is_missing_beside_spark_is_one_line(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "1.avsc").write_text('{"type": "record", "name": "A", "fields": []}')
    (tmp_path / "2.proto").write_text('syntax = "proto3"; message A { int32 id = 1; }')
    (tmp_path / "3.json").write_text('{"type": "object"}')
    packages = {*EXTRAS[name]} - {*EXTRAS["spark"]}
    modules = [*packages, *(module for module, of in PACKAGES.items() if of in packages)]
    lines = {line: extra for line, extra in BESIDE_SPARK.items() if extra == name}
    check_refused(modules, lines, tmp_path)


def check_refused(refused: list[str], needing: dict[str, str], directory: Path) -> None:
    lines = [line.replace("DIR", str(directory)) for line in needing]
    for (line, name), (code, out, err) in zip(
        needing.items(), run_without(refused, lines), strict=True
    ):
        assert (code, out) == (1, ""), (line, code, out, err)
        assert err.startswith("understudy: "), (line, err)
        assert err.endswith(f" is not installed: {how_to_install(name)}\n"), (line, err)
        assert err.count("\n") == 1, (line, err)


def test_the_report_of_the_demo_says_what_to_install_whole() -> None:
    verdict = LedgerVerdict(
        sent=1,
        acked_and_committed=1,
        acked_and_lost=0,
        never_acked=0,
        duplicated=0,
        never_acked_but_there=0,
    )
    outcome = DemoOutcome(
        victim=1,
        in_flight_at_kill=1,
        to_come_at_kill=0.5,
        verdict=verdict,
        altered=0,
        client_errors={},
        moments=[FailoverMoment("killed", 0)],
        log_dirs=[],
    )
    note = f"skipped: {how_to_install('spark')}"
    shown = io.StringIO()
    Report(outcome, Comparison((), ()), None, note).show(Console(file=shown))
    assert note in shown.getvalue()


def test_every_command_shows_its_help_without_any_extra() -> None:
    everything = sorted({module for modules in EXTRAS.values() for module in modules})
    names = list(LEAVES)
    for name, (code, out, err) in zip(
        names, run_without(everything, [f"{name} --help" for name in names]), strict=True
    ):
        assert (code, err) == (0, ""), (name, err)
        assert out.startswith(f"Usage: understudy {name}")


def test_the_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        name: tuple(re.split(r"[\[>]", each)[0].replace("-", "_") for each in packages)
        for name, packages in project["optional-dependencies"].items()
    }
    assert declared == EXTRAS


@pytest.mark.parametrize(
    ("name", "module"),
    [("formats", "google.protobuf"), ("formats", "grpc_tools"), ("iceberg", "sqlalchemy")],
)
def test_a_module_with_another_name_than_its_package(name: str, module: str) -> None:
    said = f"reading needs {module.partition('.')[0]}, which"
    with pytest.raises(MissingExtraError, match=said), extra(name, "reading"):
        raise ModuleNotFoundError("none", name=module)


def test_another_missing_package_is_not_called_an_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), extra("http", "serving"):
        importlib.import_module("no_such_module")
    with (
        pytest.raises(MissingExtraError, match="serving needs starlette, which"),
        extra("http", "serving"),
    ):
        raise ModuleNotFoundError(name="starlette.routing")


class Installed:
    """The origin of an installation and what it requires, as its metadata record them."""

    requires = ("trio>=0.30", "h11>=0.14; extra == 'http'", "starlette>=0.45; extra == 'http'")

    def __init__(self, url: str) -> None:
        self._url = url

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return json.dumps({"url": self._url}) if self._url else None


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        pytest.param("file://{dir}", "pip install '{dir}[http]'", id="a directory"),
        pytest.param(
            "file:///gone", "pip install 'h11>=0.14' 'starlette>=0.45'", id="one that is gone"
        ),
        pytest.param(
            "https://x/u.whl", "pip install 'h11>=0.14' 'starlette>=0.45'", id="elsewhere"
        ),
        pytest.param("", "pip install 'h11>=0.14' 'starlette>=0.45'", id="an index"),
    ],
)
def test_the_command_extends_an_installation_from_its_origin(
    recorded: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site" / "replication" / "extras.py"))
    monkeypatch.setattr(extras, "distribution", lambda _: Installed(recorded.format(dir=tmp_path)))
    assert how_to_install("http") == said.format(dir=tmp_path)


def test_the_command_extends_a_checkout_in_place() -> None:
    assert how_to_install("arrow") == f"pip install -e '{ROOT}[arrow]'"


def test_no_text_names_a_package_that_is_not_published() -> None:
    code = [
        path
        for package in ("storage", "replication", "scenarios", "pipeline", "understudy")
        for path in (ROOT / package).rglob("*.py")
        if path != Path(extras.__file__)
    ]
    naming = [path.name for path in (*pages(), *code) if "understudy[" in path.read_text()]
    assert naming == []
