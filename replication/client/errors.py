"""The errors of a client. Those that a program may want to handle have classes of their own.

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

from replication.errors import ErrorCode, KafkaError


class CodedError(KafkaError):
    """A KafkaError whose class has one code."""

    code_of_class: ErrorCode

    def __init__(self, message: str = "") -> None:
        super().__init__(self.code_of_class, message)


class KafkaTimeoutError(CodedError):
    """A call that was not done within its time (TimeoutException)."""

    code_of_class = ErrorCode.REQUEST_TIMED_OUT


class WakeupError(CodedError):
    """The end of a wait by `wakeup` (WakeupException). Nothing is lost; the next call goes on."""

    code_of_class = ErrorCode.OPERATION_NOT_ATTEMPTED

    def __init__(self) -> None:
        super().__init__("woken up")


class IllegalStateError(CodedError):
    """A call that this client cannot do now (IllegalStateException)."""

    code_of_class = ErrorCode.INVALID_REQUEST


class UnsupportedVersionError(CodedError):
    """A request for which the broker has no version that can carry it."""

    code_of_class = ErrorCode.UNSUPPORTED_VERSION


class TopicsError(CodedError):
    """An error of one code about `topics`."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        super().__init__(", ".join(sorted(self.topics)))


class TopicAuthorizationFailedError(TopicsError):
    """Topics that the client may not read or see."""

    code_of_class = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class InvalidTopicError(TopicsError):
    """Names that no topic can have."""

    code_of_class = ErrorCode.INVALID_TOPIC_EXCEPTION


class GroupAuthorizationFailedError(CodedError):
    """A group that the client may not join; the message is its id."""

    code_of_class = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ProducerFencedError(CodedError):
    """A producer whose transactional id another has taken over (ProducerFencedException)."""

    code_of_class = ErrorCode.PRODUCER_FENCED


class TransactionAbortedError(CodedError):
    """A transaction that failed or was given up; none of its records are committed."""

    code_of_class = ErrorCode.TRANSACTION_ABORTABLE


class RecordTooLargeError(CodedError):
    """A record that is larger than allowed (RecordTooLargeException)."""

    code_of_class = ErrorCode.MESSAGE_TOO_LARGE


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
