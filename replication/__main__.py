"""`python -m replication` is the command `understudy`."""

from replication.cli import main

if __name__ == "__main__":
    main()
