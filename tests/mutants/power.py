"""How much of the catalogue each kind of check catches, as a table and as a curve.

    python -m tests.mutants.power --write      after docs/mutants.md has new measurements

The seeds are those of the tables in docs/mutants.md. A mutant that names a test is caught by a
story or by a unit test; any other one by its simulator, once the page has the seed of it. The
curve is the share of all hunted mutants that the simulators have caught by a seed.
"""

import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.mutants.catalogue import HUNTED, MUTANTS, ROOMS
from tests.mutants.mutant import Mutant

PAGE: Final = Path(__file__).parents[2] / "docs" / "mutants.md"
CURVE: Final = PAGE.with_suffix(".svg")
COMMAND: Final = "python -m tests.mutants.power --write"
BEGIN, END = f"<!-- made by `{COMMAND}` -->", "<!-- end of what was made -->"
KINDS: Final = ("simulators", "stories", "unit tests", "not measured", "covered")
MOST_SEEDS: Final = 200
_MEASURED = re.compile(r"^\| (.+?) \| .+? \| (\d+)\*? \|", re.MULTILINE)
_STORY = "tests/scenarios/test_stories.py"


def measured(page: str) -> dict[str, int]:
    """Return the seed that the page has for each mutant that a simulator has caught."""
    return {name: int(seed) for name, seed in _MEASURED.findall(page)}


def kind_of(mutant: Mutant, seeds: Mapping[str, int]) -> str:
    """Return which of `KINDS` the mutant is."""
    if mutant.covered:
        return "covered"
    if mutant.caught_by:
        return "stories" if mutant.caught_by.startswith(_STORY) else "unit tests"
    return "simulators" if mutant.name in seeds else "not measured"


def table(seeds: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines of the table: for each room, how many mutants are caught by what."""
    yield f"| room | mutants | {' | '.join(KINDS)} |"
    yield "|---|" + "---|" * (1 + len(KINDS))
    rooms = {room: Counter(kind_of(each, seeds) for each in listed) for room, listed in ROOMS}
    rooms["all"] = sum(rooms.values(), Counter())
    for room, counts in rooms.items():
        numbers = [counts.total(), *(counts[kind] for kind in KINDS)]
        yield f"| {room} | {' | '.join(map(str, numbers))} |"


def section(page: str) -> str:
    """Return what stands in the page between `BEGIN` and `END`."""
    seeds = measured(page)
    caught = _caught(seeds)
    within = sum(seed <= MOST_SEEDS for seed in caught)
    return "\n".join(
        [
            BEGIN,
            "",
            *table(seeds),
            "",
            (
                f"Of the {len(HUNTED)} that are hunted the simulators catch {within} within"
                f" {MOST_SEEDS} seeds, which is {within / len(HUNTED):.0%}; the median is seed"
                f" {statistics.median(caught):.0f}."
            ),
            "",
            f"![The share that is caught by a seed]({CURVE.name})",
            "",
            END,
        ]
    )


def _caught(seeds: Mapping[str, int]) -> list[int]:
    return sorted(seeds[name] for name in HUNTED if name in seeds and not MUTANTS[name].caught_by)


def curve(seeds: Iterable[int], hunted: int) -> str:
    """Return the drawing: how many of the `hunted` are caught by a seed, from 1 on."""
    left, top, width, height = 50, 20, 560, 240
    points, caught = [(0.0, 0)], 0
    for seed in sorted(seeds):
        points.append((seed / MOST_SEEDS, caught))
        caught += 1
        points.append((seed / MOST_SEEDS, caught))
    points.append((1.0, caught))
    line = " ".join(
        f"{left + x * width:.1f},{top + height * (1 - y / hunted):.1f}" for x, y in points
    )
    texts = [
        f'<text x="{left - 8}" y="{top + height * (1 - share / 100) + 4:.0f}"'
        f' text-anchor="end">{share}%</text>'
        for share in range(0, 101, 25)
    ]
    texts += [
        f'<text x="{left + width * seed / MOST_SEEDS:.0f}" y="{top + height + 18}"'
        f' text-anchor="middle">{seed}</text>'
        for seed in range(0, MOST_SEEDS + 1, 50)
    ]
    return "\n".join(
        [
            (
                '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 300" role="img"'
                ' font-family="sans-serif" font-size="12" fill="#555">'
            ),
            "<title>The share of mutants that the simulators catch by a seed</title>",
            (
                f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none"'
                ' stroke="#bbb"/>'
            ),
            *texts,
            f'<polyline points="{line}" fill="none" stroke="#1667b7" stroke-width="2"/>',
            "</svg>",
            "",
        ]
    )


def written(page: str) -> tuple[str, str]:
    """Return the page with its section made anew, and the drawing."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{section(page)}{after}", curve(_caught(measured(page)), len(HUNTED))


if __name__ == "__main__":
    made_page, made_curve = written(PAGE.read_text())
    if "--write" in sys.argv:
        PAGE.write_text(made_page)
        CURVE.write_text(made_curve)
    else:
        print(section(made_page))
