"""The import that a first cluster waits for compiles no repr and no comparison."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

COMPILED = """
import sys
import attrs, replication.testing

for kind in {each for module in list(sys.modules.values()) for each in vars(module).values()
             if isinstance(each, type) and attrs.has(each)}:
    if kind.__module__.partition(".")[0] in ("storage", "replication"):
        for name in ("__repr__", "__eq__", "__hash__"):
            code = getattr(vars(kind).get(name), "__code__", None)
            if code is not None and code.co_filename.startswith("<attrs"):
                print(kind.__module__, kind.__qualname__, name)
"""
ORDERED = {"OffsetAndEpoch", "ReplicaKey"}
"""Classes with `order=True`, which attrs wants to make itself."""


def test_attrs_compiles_no_repr_and_no_comparison() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = {line.split()[1] for line in done.stdout.splitlines()}
    assert found == ORDERED, "declare the others with storage.attributes"
