"""The behaviours of Apache Kafka's own tests that tests here show: `make conformance`.

`conformance.txt` has a line for each behaviour that one of Kafka's tests asserts:

    FT-7    held        testFencedFetch
    UL-31   not yet     testProducerSnapshotAfterSegmentRollOnAppend

A test of ours that shows one carries `@pytest.mark.conformance("FT-7")`. This prints the
counts of each group, and fails where the list and the tests disagree; `--write` brings the
list's `held` and `not yet` in line with the tests. `out of scope: why` is set by hand.
"""

import ast
import sys
from collections import Counter
from pathlib import Path

import attrs

TESTS = Path(__file__).resolve().parent
LIST = TESTS / "conformance.txt"
HELD, NOT_YET, OUT_OF_SCOPE = "held", "not yet", "out of scope"


@attrs.frozen
class Behaviour:
    """One line of the list; `test` is the name of Kafka's test method."""

    id: str
    state: str
    test: str

    def __str__(self) -> str:
        return f"{self.id:<8}{self.state + '  ':<12}{self.test}".rstrip()

    @property
    def group(self) -> str:
        return self.id.partition("-")[0]


def read_list() -> list[Behaviour]:
    behaviours = []
    for line in LIST.read_text().splitlines():
        state = line[8:].partition("  ")[0].strip()
        behaviours.append(Behaviour(line[:8].strip(), state, line[8:].partition("  ")[2].strip()))
    return behaviours


def shown_ids() -> set[str]:
    """Every id in a `conformance` marker, read from the source: parametrised ones too."""
    found = set()
    marking = (text for path in TESTS.rglob("*.py") if "conformance(" in (text := path.read_text()))
    for text in marking:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and _name(node.func) == "conformance":
                found |= {
                    argument.value
                    for argument in node.args
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                }
    return found


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def disagreements(behaviours: list[Behaviour], shown: set[str]) -> list[str]:
    """One line for each id that the list and the tests tell differently."""
    state = {behaviour.id: behaviour.state for behaviour in behaviours}
    unknown = [f"{one} is in no line of {LIST.name}" for one in sorted(shown - state.keys())]
    lost = [
        f"{one} is held by no test" for one, s in state.items() if s == HELD and one not in shown
    ]
    new = [
        f"{one} is held, but listed as {s}"
        for one, s in state.items()
        if s != HELD and one in shown
    ]
    return unknown + lost + new


def updated(behaviour: Behaviour, shown: set[str]) -> Behaviour:
    if behaviour.id in shown:
        return attrs.evolve(behaviour, state=HELD)
    if behaviour.state == HELD:
        return attrs.evolve(behaviour, state=NOT_YET)
    return behaviour


def counted(behaviours: list[Behaviour]) -> list[tuple[str, list[int]]]:
    """Return for each group how many behaviours are held, not yet held, and out of scope."""
    groups = dict.fromkeys(behaviour.group for behaviour in behaviours)
    counts = Counter((one.group, one.state.partition(":")[0]) for one in behaviours)
    states = (HELD, NOT_YET, OUT_OF_SCOPE)
    return [(group, [counts[group, state] for state in states]) for group in groups]


def print_counts(behaviours: list[Behaviour]) -> None:
    print(f"{'group':<8}{HELD:>6}{NOT_YET:>9}{OUT_OF_SCOPE:>14}")
    for group, (held, not_yet, out_of_scope) in counted(behaviours):
        print(f"{group:<8}{held:>6}{not_yet:>9}{out_of_scope:>14}")


def main(arguments: list[str]) -> int:
    behaviours, shown = read_list(), shown_ids()
    if "--write" in arguments:
        behaviours = [updated(behaviour, shown) for behaviour in behaviours]
        LIST.write_text("".join(f"{behaviour}\n" for behaviour in behaviours))
    print_counts(behaviours)
    wrong = disagreements(behaviours, shown)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
