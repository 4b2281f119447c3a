"""What a client writes to the human log: what it met and went on after.

A program that has configured structlog gets it there. Of one that has not, standard output is
its own: structlog would print to it, and spoil what the program prints.
"""

import sys

from replication.visible import visible_line


def warn(event: str, **fields: object) -> None:
    """One line; structlog costs a fifth of a start, and most clients have nothing to say."""
    import structlog  # noqa: PLC0415

    if structlog.is_configured():
        logger = structlog.get_logger(__name__)
    else:
        logger = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    shown = {name: visible_line(v) if isinstance(v, str) else v for name, v in fields.items()}
    logger.warning(event, **shown)
