"""`python -m understudy` and the command `understudy`."""

import importlib


def main() -> None:
    """Run the command of `replication.cli`."""
    importlib.import_module("understudy.replication.cli").main()


if __name__ == "__main__":
    main()
