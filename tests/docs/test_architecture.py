"""docs/architecture.md draws the tree, the layers and the walks as they are."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text()
PACKAGES = ("storage", "replication", "scenarios", "pipeline", "understudy")
LAYERS = {
    "A room imports only the rooms below it": slice(0, -1),  # the last one is storage
    "Inside storage, a room imports only the rooms below it": slice(0, None),
}
# `file`: `function`, or `Class.method`
HOP = re.compile(r"`([\w/]+\.py)`: `(\w+)(?:\.(\w+))?`")


def block(title: str) -> list[str]:
    """Return the lines of the first fenced block below a heading."""
    text = PAGE.partition(f"# {title}\n")[2]
    return text.split("```\n")[1].splitlines()


def tree() -> set[str]:
    """Return the folders that the tree draws; two blanks open a level."""
    found, above = set[str](), list[str]()
    for line in block("The tree"):
        depth = (len(line) - len(line.lstrip())) // 2
        names = re.match(r" *((?:[\w-]+/(?:  )?)+)", line)
        for name in names[1].split() if names and depth <= len(above) else ():
            above[depth:] = [name.rstrip("/")]
            found.add("/".join(above))
    return found


def test_the_tree_draws_the_folders_that_there_are() -> None:
    drawn = tree()
    assert {name for name in drawn if not (ROOT / name).is_dir()} == set()
    there = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in [ROOT / package, *(ROOT / package).iterdir()]
        # What was a package may have left compiled files alone.
        if path.is_dir() and path.name != "__pycache__" and any(path.glob("*.*"))
    }
    assert there - drawn == {"replication/config"}, "which stands among the files"


@pytest.mark.parametrize("room", ["leader", "follower"])
def test_the_tree_names_the_modules_of_the_two_halves(room: str) -> None:
    (first,) = (i for i, line in enumerate(block("The tree")) if line.startswith(f"  {room}/"))
    rules, tasks = block("The tree")[first : first + 2]
    for folder, names in ((f"{room}/rules", rules.partition("rules/: ")[2]), (room, tasks)):
        there = {
            path.stem
            for path in (ROOT / "replication" / folder).iterdir()
            if path.name not in {"__init__.py", "__pycache__", "rules"}
        }
        assert {name.strip(" /") for name in names.split(",")} == there


def room_of(module: str) -> str:
    """Return the room of a module of a contract, as the page names it."""
    inner = re.sub(r"^(?:replication|storage)\.", "", module)
    return inner.replace(".", "/") if inner.endswith(".rules") else inner.partition(".")[0]


def test_the_page_draws_the_layers_of_the_contracts() -> None:
    importlinter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [
        {room_of(module) for module in re.findall(r"[\w.]+", layer)}
        for contract in importlinter["contracts"]
        if contract["name"] in LAYERS
        for layer in contract["layers"][LAYERS[contract["name"]]]
    ]
    lines = [line for line in block("Who may import whom") if not line.startswith("---")]
    assert [set(re.split(r"[ |]+", line.partition(" (")[0])) for line in lines] == layers


def defined(file: str) -> dict[str, set[str]]:
    """Return the functions and classes of a module, each with its methods."""
    return {
        node.name: {
            each.name
            for each in ast.walk(node)
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each is not node
        }
        for node in ast.parse((ROOT / file).read_text()).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_what_the_walks_name_is_there() -> None:
    missing = [
        f"{file}: {name}{method and '.'}{method}"
        for file, name, method in HOP.findall(PAGE)
        if not (names := defined(file)).keys() >= {name} or (method and method not in names[name])
    ]
    assert missing == []


def layer_of(file: str) -> int:
    room = "/".join(Path(file).parts[1:3] if "metadata/rules" in file else Path(file).parts[1:2])
    lines = block("Who may import whom")
    storage = next(i for i, line in enumerate(lines) if line.startswith("---"))
    wanted = lines[storage:] if file.startswith("storage") else lines[:storage]
    at = next(i for i, line in enumerate(wanted) if room in re.split(r"[ |]+", line))
    return at + storage * file.startswith("storage")


def test_each_hop_of_a_walk_goes_down_or_stays_in_its_room() -> None:
    walks = re.findall(r"^\*\*(.+?)\*\*\n\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert len(walks) == 6
    for name, rows in walks:
        hops = [HOP.match(row, 2) for row in rows.splitlines()[2:]]
        depths = [layer_of(hop[1]) for hop in hops if hop]
        assert len(depths) == len(rows.splitlines()) - 2, name
        assert depths == sorted(depths), name


def test_the_five_questions_are_answered_by_a_file() -> None:
    rows = re.findall(r"^\| .*\? \| `(.+)` \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    assert all((ROOT / row).is_file() for row in rows)
