"""`python -m replication.cli` is the `understudy` command."""

from replication.cli import main

main()
