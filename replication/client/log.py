"""Warnings of a client for the human log: failures after which it went on.

They go to structlog if the program has configured it. Otherwise they go to standard error:
structlog would print to standard output, which belongs to the program.
"""

import sys

from replication.visible import visible_line


def warn(event: str, **fields: object) -> None:
    """Write one line. structlog is imported here: it costs a fifth of a start and is rarely used."""
    import structlog  # noqa: PLC0415

    if structlog.is_configured():
        logger = structlog.get_logger(__name__)
    else:
        logger = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    shown = {name: visible_line(v) if isinstance(v, str) else v for name, v in fields.items()}
    logger.warning(event, **shown)
