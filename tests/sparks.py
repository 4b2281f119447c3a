"""The pipeline's tests on every supported Spark.

This script makes an environment for each Spark (`.venv-spark-4.1`) and runs `tests/pipeline` and a
user's suite there. It exits non-zero if one of them fails. `make test` and `make deep` run the same
tests on the newest Spark.

    python -m tests.sparks            all of them
    python -m tests.sparks 4.1        just that one
"""

import subprocess
import sys
from pathlib import Path

from tests.other_pythons import ROOT, make_environment

SUPPORTED = ("4.1", "4.2", "4.3")
SUITE = "tests/plugin/test_suites.py::test_a_suite_passes[daily_pyspark]"
# Spark 4.1 leaves the sockets of collected rows to the garbage collector.
LENIENT = ("-W", "ignore:unclosed <socket:ResourceWarning")


def constraints(directory: Path, spark: str) -> Path:
    """Write the constraints of this repository with another version of Spark, and return the file."""
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
        extras="spark,delta,iceberg,formats,java",
        constraints=constraints(ROOT / ".venv-sparks", spark),
    )
    wanted = ["tests/pipeline", SUITE]
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
        print(f"not a supported Spark: {', '.join(sorted(unknown))}; {', '.join(SUPPORTED)}")
        return 2
    failed = [each for each in wanted or SUPPORTED if not passes_on(each)]
    if failed:
        print(f"FAILED on Spark {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
