"""The errors that members get where their group could not be written."""

from replication.errors import ErrorCode


def group_error(error: ErrorCode) -> ErrorCode:
    """Return a member's error where its group could not be written (GroupMetadataManager)."""
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.REQUEST_TIMED_OUT:
            return ErrorCode.REBALANCE_IN_PROGRESS
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error


def commit_error(error: ErrorCode) -> ErrorCode:
    """Return the error of a commit; one that is out of time says so, and is tried again."""
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return error if error is ErrorCode.REQUEST_TIMED_OUT else group_error(error)


def transaction_error(error: ErrorCode) -> ErrorCode:
    """Return the error of a commit whose transaction could not be verified.

    The client must not look for another coordinator of the group because that of the
    transaction did not answer.
    """
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return commit_error(error)
