"""What a client raises: a KafkaError under a name of its own where a program may want to act.

    KafkaError                            `code`, `retriable`; any code that has no class here
    ├── KafkaTimeoutError                   not done in time; the cause is the last failure seen
    ├── WakeupError                         `wakeup()` was called while it waited
    ├── IllegalStateError                   asked in an order in which it cannot be done
    ├── UnsupportedVersionError             the broker speaks no version that could say this
    ├── TopicAuthorizationFailedError       `topics`
    ├── InvalidTopicError                   `topics`
    ├── GroupAuthorizationFailedError
    ├── ProducerFencedError                 another producer has the transactional id
    ├── TransactionAbortedError             nothing of a transaction is there
    ├── RecordTooLargeError                 a record over what the client may take or send
    └── ... of consumers: replication/client/consumer_errors.py

A broker that is away is `PeerUnavailableError`, and one that does not speak the protocol
`ProtocolError`; clients try again after both, and in the end say KafkaTimeoutError. One that
will not have us, or that shows a certificate we do not believe, is an `AuthenticationError`,
which is raised at once.
"""

from collections.abc import Iterable

from replication.errors import ErrorCode, KafkaError, PeerUnavailableError, ProtocolError

NO_ANSWER = (PeerUnavailableError, ProtocolError)
"""What a request fails with when no answer to it came: the broker may or may not have acted."""


class KafkaTimeoutError(KafkaError):
    """What was asked for did not happen within its time (TimeoutException)."""

    def __init__(self, message: str = "") -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class WakeupError(KafkaError):
    """Somebody called `wakeup` (WakeupException). Nothing is lost; the next call goes on."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.OPERATION_NOT_ATTEMPTED, "woken up")


class IllegalStateError(KafkaError):
    """The program asks for what this client cannot do now (IllegalStateException)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class UnsupportedVersionError(KafkaError):
    """The broker has no version of a request that could carry what is asked."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class _OfTopicsError(KafkaError):
    code_of_class: ErrorCode

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        super().__init__(self.code_of_class, ", ".join(sorted(self.topics)))


class TopicAuthorizationFailedError(_OfTopicsError):
    """Not allowed to read or to see `topics`."""

    code_of_class = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class InvalidTopicError(_OfTopicsError):
    """No topic can have these names."""

    code_of_class = ErrorCode.INVALID_TOPIC_EXCEPTION


class GroupAuthorizationFailedError(KafkaError):
    """Not allowed to be in the group."""

    def __init__(self, group_id: str) -> None:
        super().__init__(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id)


class ProducerFencedError(KafkaError):
    """Another producer has the transactional id now (ProducerFencedException): close this one."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(ErrorCode.PRODUCER_FENCED, transactional_id)


class TransactionAbortedError(KafkaError):
    """Of a transaction that failed, or was given up: nothing of it is there."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.TRANSACTION_ABORTABLE, message)


class RecordTooLargeError(KafkaError):
    """A record that does not fit (RecordTooLargeException)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


def raise_for(code: int, message: str = "") -> None:
    """KafkaError for any code but NONE."""
    error = ErrorCode.of(code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, message)
