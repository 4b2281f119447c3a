"""A change of a transaction on its way into the log, and a producer's error where it fails."""

import attrs
import trio

from replication.errors import ErrorCode


@attrs.define(eq=False)
class PendingChange:
    """A change on its way into the log."""

    error: ErrorCode = ErrorCode.NONE
    done: trio.Event = attrs.field(factory=trio.Event)


def error_of(error: ErrorCode) -> ErrorCode:
    """Return a producer's error where its transaction could not be written (KIP-98)."""
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error
