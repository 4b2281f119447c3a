"""The pipeline's tests, on every supported Spark; of the newest what `make test` leaves out.

Makes an environment for each (`.venv-spark-4.1`), with the oldest Python that is supported, and
runs `tests/pipeline` and a user's suite there. `make test` has the newest Spark, but for the tests
that are marked `sparks`, which start sessions of their own. Exits non-zero where one of them fails.

    python -m tests.sparks            all of them
    python -m tests.sparks 4.1        just that one
"""

import subprocess
import sys
from pathlib import Path

from tests.other_pythons import ROOT, make_environment

NEWEST = "4.3"
SUPPORTED = ("4.1", "4.2", NEWEST)
SUITE = "tests/plugin/test_suites.py::test_a_suite_passes[daily_pyspark]"
# What Spark 4.1 has collected rows from is closed by the garbage collector.
LENIENT = ("-W", "ignore:unclosed <socket:ResourceWarning")


def constraints(directory: Path, spark: str) -> Path:
    """Ours, but for Spark's version."""
    kept = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("pyspark==")
    ]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"constraints-{spark}.txt"
    path.write_text("\n".join([*kept, f"pyspark=={spark}.*", ""]))
    return path


def passes_on(spark: str) -> bool:
    environment = ROOT / f".venv-spark-{spark}"
    inside = make_environment(
        sys.executable,
        environment,
        extras="spark,delta,java",
        constraints=constraints(ROOT / ".venv-sparks", spark),
    )
    wanted = ["tests/pipeline", SUITE, *(("-m", "sparks") if spark == NEWEST else ())]
    print(f"Spark {version(inside)}: {' '.join(wanted)}", flush=True)
    command = [str(inside), "-m", "pytest", "-q", *LENIENT, *wanted]
    return subprocess.run(command, check=False, cwd=ROOT).returncode == 0


def version(inside: Path) -> str:
    command = [str(inside), "-c", "import pyspark; print(pyspark.__version__)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(SUPPORTED)
    if unknown:
        print(
            f"not a Spark that is tried here: {', '.join(sorted(unknown))}; {', '.join(SUPPORTED)}"
        )
        return 2
    failed = [each for each in wanted or SUPPORTED if not passes_on(each)]
    if failed:
        print(f"FAILED on Spark {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
