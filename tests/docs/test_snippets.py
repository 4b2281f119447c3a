"""What the pages show is run: programs, commands and tests, and what they print is compared."""

import ast
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from replication.testing import ThreadedCluster
from tests.docs.running import Place, at_rest, cluster_at_work, fill, in_order
from tests.docs.snippets import ROOT, Block, blocks_of, every_block, is_of_spark, pages
from tests.plugin.by_name import PLUGIN

RUN = {"python", "sh", "console"}
# `make deep` runs the other pages.
QUICK = {"README", "tutorial"}
KNOWN = {*RUN, "", "text", "{eval-rst}", "json", "properties", "ini", "toml", "dockerfile", "yaml"}


def runnable(page: Path) -> list[Block]:
    """Return the blocks to run, in order, without tests and without those that need Spark."""
    blocks = (block for block in blocks_of(page) if block.language in RUN)
    return [
        each
        for each in blocks
        if not each.is_left_out and not each.is_tests and not is_of_spark(each)
    ]


def programs(page: Path) -> list[Block]:
    return [
        each
        for each in blocks_of(page)
        if each.language == "python" and not each.is_left_out and not is_of_spark(each)
    ]


def definitions(program: str) -> str:
    """Return the imports and functions of a program, without what it does with them."""
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return "\n".join(
        ast.unparse(each) for each in ast.parse(program).body if isinstance(each, kinds)
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with cluster_at_work() as running:
        fill(running)
        yield running


@pytest.fixture(scope="module")
def stopped(cluster: ThreadedCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("left-behind")
    at_rest(folder, cluster)
    return folder


@pytest.fixture
def place(
    cluster: ThreadedCluster, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    folder = tmp_path / "here"
    shutil.copytree(stopped, folder)
    monkeypatch.chdir(folder)
    in_order(cluster)
    place = Place(folder, cluster)
    yield place
    place.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page.stem in QUICK else [pytest.mark.deep])
        for page in pages()
        if runnable(page)
    ],
    ids=lambda page: page.stem,
)
def test_what_a_page_shows_runs(page: Path, place: Place) -> None:
    pytest.importorskip("confluent_kafka")
    pytest.importorskip("pyarrow")
    for block in runnable(page):
        place.run(block)
    place.names.clear()  # a producer that is kept would go on asking for a cluster that is gone


@pytest.mark.deep
@pytest.mark.slow
def test_the_tests_that_pages_show_pass(pytester: pytest.Pytester) -> None:
    for name in ("aiokafka", "confluent_kafka"):
        pytest.importorskip(name)
    blocks = [each for each in every_block() if each.is_tests and not is_of_spark(each)]
    assert len(blocks) > 1
    assert [str(block) for block in blocks if block.is_left_out] == []
    # Those of a page go together: a test may need what a block above it imports or defines.
    for page in {block.page for block in blocks}:
        name = f"test_{Path(page).stem.replace('-', '_')}.py"
        parts = [
            each.text if each.is_tests else definitions(each.text) for each in programs(ROOT / page)
        ]
        (pytester.path / name).write_text("\n\n".join(parts))
    pytester.makeini("[pytest]\ntrio_mode = true\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *PLUGIN)
    shown = sum(
        len(re.findall(r"^(?:async )?def test_", each.text, re.MULTILINE)) for each in blocks
    )
    assert result.ret == 0, result.stdout.str()
    assert result.parseoutcomes()["passed"] >= shown


def test_every_block_says_what_it_is() -> None:
    """A block that is neither run nor said not to be is one that nobody keeps true."""
    blocks = every_block()
    assert [f"{each}: {each.language}" for each in blocks if each.language not in KNOWN] == []
    assert [str(each) for each in blocks if each.looks_typed] == [], "commands are ```sh"


def test_what_is_not_run_says_why() -> None:
    silent = [
        str(block)
        for block in every_block()
        for why in block.not_run.values()
        if len(why.split()) < 3
    ]
    assert silent == []


def test_what_is_said_not_to_be_run_is_there() -> None:
    idle = [
        f"{block}: {start}"
        for block in every_block()
        for start in block.not_run
        if start and not any(each.startswith(start) for each in block.commands())
    ]
    assert idle == []
