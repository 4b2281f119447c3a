"""The errors of a client: a KafkaError has a class of its own if a program may want to act.

    KafkaError                            `code`, `retriable`; any code that has no class here
    ├── KafkaTimeoutError                   not done in time; the cause is the last failure seen
    ├── WakeupError                         `wakeup()` was called while it waited
    ├── IllegalStateError                   a call that this client cannot do now
    ├── UnsupportedVersionError             the broker speaks no version that could say this
    ├── TopicAuthorizationFailedError       `topics`
    ├── InvalidTopicError                   `topics`
    ├── GroupAuthorizationFailedError
    ├── ProducerFencedError                 another producer has the transactional id
    ├── TransactionAbortedError             nothing of a transaction is there
    ├── RecordTooLargeError                 a record over what the client may take or send
    └── ... of consumers: replication/client/consumer/errors.py

A broker that is away is a `PeerUnavailableError`, and one that does not speak the protocol a
`ProtocolError`; clients try again after both, and raise KafkaTimeoutError in the end. A refused
login, or a certificate that cannot be verified, is an `AuthenticationError`, raised at once.
"""

from collections.abc import Iterable

from replication.errors import ErrorCode, KafkaError, PeerUnavailableError, ProtocolError

NO_ANSWER = (PeerUnavailableError, ProtocolError)
"""The errors of a request without a response; the broker may or may not have carried it out."""


class KafkaTimeoutError(KafkaError):
    """A call that was not done within its time (TimeoutException)."""

    def __init__(self, message: str = "") -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class WakeupError(KafkaError):
    """The end of a wait by `wakeup` (WakeupException). Nothing is lost; the next call goes on."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.OPERATION_NOT_ATTEMPTED, "woken up")


class IllegalStateError(KafkaError):
    """A call that this client cannot do now (IllegalStateException)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class UnsupportedVersionError(KafkaError):
    """A request for which the broker has no version that can carry it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class _TopicsError(KafkaError):
    code_of_class: ErrorCode

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        super().__init__(self.code_of_class, ", ".join(sorted(self.topics)))


class TopicAuthorizationFailedError(_TopicsError):
    """Topics that the client may not read or see."""

    code_of_class = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class InvalidTopicError(_TopicsError):
    """Names that no topic can have."""

    code_of_class = ErrorCode.INVALID_TOPIC_EXCEPTION


class GroupAuthorizationFailedError(KafkaError):
    """A group that the client may not join."""

    def __init__(self, group_id: str) -> None:
        super().__init__(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id)


class ProducerFencedError(KafkaError):
    """A producer whose transactional id another has taken over (ProducerFencedException)."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(ErrorCode.PRODUCER_FENCED, transactional_id)


class TransactionAbortedError(KafkaError):
    """A transaction that failed or was given up; none of its records are committed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.TRANSACTION_ABORTABLE, message)


class RecordTooLargeError(KafkaError):
    """A record that is larger than allowed (RecordTooLargeException)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


def raise_for(code: int, message: str = "") -> None:
    """Raise a KafkaError for any code but NONE."""
    error = ErrorCode.of(code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, message)


def raised_again(error: Exception) -> Exception:
    """Return a copy for each waiter: an exception that is raised twice gathers both tracebacks."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    return copy
