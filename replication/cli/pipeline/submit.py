"""The entry point of `spark-submit`, for every job and its arguments of `understudy pipeline`.

    spark-submit --master MASTER submit.py audit LOG_DIR LOG_DIR --output json

It works in a checkout or an installation, and as a single file with `--py-files understudy.zip`:
`understudy pipeline bundle` writes both.
"""

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run one job."""
    # Spark puts the directory of this file first, where modules have the names of packages.
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != HERE]
    if HERE.parts[-3:] == ("replication", "cli", "pipeline"):
        sys.path.insert(0, str(HERE.parents[2]))
    importlib.import_module("understudy.replication.cli").main(["pipeline", *sys.argv[1:]])


if __name__ == "__main__":
    main()
