"""Why a source and a copy do not go together."""

from replication.errors import UnderstudyError


class MirrorError(UnderstudyError):
    """What the source or the copy is keeps the one from being followed by the other."""
