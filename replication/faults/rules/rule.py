"""What is to go wrong, and with which requests: a `FaultRule`, which is a value.

    FaultRule(api="PRODUCE", topic="orders", error="NOT_ENOUGH_REPLICAS", trigger=times(2))
    FaultRule(api="PRODUCE", topic="orders", effect="close-after", trigger=once())
    FaultRule(client_id="billing-*", effect="drop-request")
    FaultRule(api="FETCH", topic="orders", partition=0, delay_ms=500)
    FaultRule(api="OFFSET_COMMIT", effect="observe")

    which requests   api, topic, partition, client_id (a pattern), broker, sender, when
    what is done     delay_ms first, then an error or an effect; throttle_ms beside what is answered

What is left out holds for all. Rule 1: a rule that could never do what it says is refused when
it is made, with the field that is wrong (FaultRuleError).

Rule 2: a rule is about clients. What brokers ask each other (followers' fetches, forwarded
requests, transaction markers) is met by rules that say so (`sender`), or whose API is one that
nobody else asks.
"""

import enum
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from replication.errors import ErrorCode, UnderstudyError
from replication.faults.rules.parts import ANSWERED_AS_A_WHOLE, HAS_PARTITIONS, NAMES
from replication.faults.rules.triggers import EveryTime, OnCall, Times, Trigger, WithProbability
from replication.wire.apis import API, ApiKey
from replication.wire.schema import fields_of

E = TypeVar("E", bound=enum.Enum)

MOST = 2**31 - 1
"""Of numbers: Kafka's int32, as which an answer tells of throttling."""

ASKED_BY_BROKERS = {
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.ALTER_PARTITION,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
}


class FaultRuleError(UnderstudyError):
    """A rule that cannot be; `field` is what is wrong with it."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


class Effect(enum.Enum):
    """What becomes of a request that is not just answered."""

    OBSERVE = "observe"
    """Nothing; it is noted."""
    DROP_REQUEST = "drop-request"
    """Not handled; the connection stays open and silent: a black hole."""
    DROP_ANSWER = "drop-answer"
    """Handled; then the same silence."""
    CLOSE_BEFORE = "close-before"
    """Not handled; the connection is closed."""
    CLOSE_AFTER = "close-after"
    """Handled, and the client never hears of it: the connection is closed."""
    CUT_ANSWER = "cut-answer"
    """Handled; the connection is closed in the middle of the answer."""


class Sender(enum.Enum):
    CLIENTS = "clients"
    BROKERS = "brokers"
    ANYONE = "anyone"


def _named(kind: type[E], field: str, given: Any) -> E | None:
    """A member by itself, by its value, or by its name in any case."""
    if given is None or isinstance(given, kind):
        return given
    for member in kind:
        if str(given).lower().replace("_", "-") == member.value:
            return member
    raise FaultRuleError(field, f"{given!r} is not one of {_listed(kind)}")


def _sender(given: Any) -> Sender | None:
    return _named(Sender, "sender", given)


def _effect(given: Any) -> Effect | None:
    return _named(Effect, "effect", given)


def _listed(kind: type[enum.Enum]) -> str:
    return ", ".join(str(each.value) for each in kind)


def _api(given: Any) -> ApiKey | None:
    """`OFFSET_COMMIT`, `OffsetCommit` and 8 are the same."""
    squeezed = str(given).upper().replace("_", "")
    for key in ApiKey:
        if squeezed == key.name.replace("_", "") or (given == key and not isinstance(given, bool)):
            return key
    if given is None:
        return None
    raise FaultRuleError("api", f"{given!r} is no API that brokers serve; PRODUCE is one")


def _error(given: Any) -> ErrorCode | None:
    code = None if isinstance(given, bool) else given
    error = code if isinstance(code, int) else getattr(ErrorCode, str(given).upper(), None)
    if given is None:
        return None
    if error not in set(ErrorCode) or error == ErrorCode.NONE:
        raise FaultRuleError("error", f"{given!r} is none of Kafka's; NOT_LEADER_OR_FOLLOWER is")
    return ErrorCode(error)


def _trigger(given: Any) -> Trigger:
    """`once`, for `once()`, would never fire."""
    if not isinstance(given, Trigger):
        raise FaultRuleError("trigger", f"{given!r} is none; once() is")
    return given


@attrs.frozen(kw_only=True)
class FaultRule:
    """See the head of this module. Names may be given as text."""

    api: ApiKey | None = attrs.field(default=None, converter=_api)
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    """A shell pattern: `billing-*`."""
    broker: int | None = None
    """Where it is asked; 0 is the controller."""
    sender: Sender | None = attrs.field(default=None, converter=_sender)
    """None: clients, or brokers where nobody else asks."""
    when: Callable[[Any], bool] | None = None
    """Asked with the decoded request (`replication.wire`); only in a program."""
    error: ErrorCode | None = attrs.field(default=None, converter=_error)
    effect: Effect | None = attrs.field(default=None, converter=_effect)
    delay_ms: int = 0
    throttle_ms: int = 0
    """What the answer says of throttling; clients then wait by themselves."""
    trigger: Trigger = attrs.field(factory=EveryTime, converter=_trigger)

    def __attrs_post_init__(self) -> None:
        self._check_types()
        self._check_which()
        self._check_what()
        self._check_trigger()

    @property
    def senders(self) -> Sender:
        if self.sender is not None:
            return self.sender
        return Sender.BROKERS if self.api in ASKED_BY_BROKERS else Sender.CLIENTS

    @property
    def is_fault(self) -> bool:
        """Whether it does more than look."""
        return bool(self.error or self.delay_ms or self.throttle_ms) or (
            self.effect not in (None, Effect.OBSERVE)
        )

    def __str__(self) -> str:
        named = {
            "": None if self.api is None else self.api.name,
            "topic": self.topic,
            "partition": self.partition,
            "client": self.client_id,
            "broker": self.broker,
            "from": self.sender and self.sender.value,
        }
        which = " ".join(
            f"{word} {value}".strip() for word, value in named.items() if value is not None
        )
        return f"{which or 'any request'}: {self.what}, {self.trigger}"

    @property
    def what(self) -> str:
        """What it does, to read."""
        done = [
            f"delay {self.delay_ms} ms" if self.delay_ms else "",
            f"throttle {self.throttle_ms} ms" if self.throttle_ms else "",
            self.error.name if self.error else "",
            self.effect.value if self.effect else "",
        ]
        return " + ".join(filter(None, done))

    def _check_types(self) -> None:
        for field in ("topic", "client_id"):
            if not isinstance(getattr(self, field), str | None) or getattr(self, field) == "":
                raise FaultRuleError(field, f"{getattr(self, field)!r} is no name")
        for field in ("partition", "broker", "delay_ms", "throttle_ms"):
            value = getattr(self, field)
            if value is not None and not (_is_whole(value) and 0 <= value <= MOST):
                raise FaultRuleError(field, f"{value!r} is no whole number of 0 to {MOST}")

    def _check_which(self) -> None:
        if self.partition is not None and self.topic is None:
            raise FaultRuleError("topic", "a partition is one of a topic; name it")
        if self.api is None:
            return
        if self.topic is not None and self.api not in NAMES:
            raise FaultRuleError("topic", f"{self.api.name} names no topics")
        if self.partition is not None and self.api not in HAS_PARTITIONS:
            raise FaultRuleError("partition", f"{self.api.name} names no partitions")
        if self.partition is not None and self.error and self.api in ANSWERED_AS_A_WHOLE:
            raise FaultRuleError("partition", f"{self.api.name} has no error for one partition")

    def _check_what(self) -> None:
        if not self.is_fault and self.effect is None:
            raise FaultRuleError(
                "effect",
                f"nothing is to be done: error, delay_ms, throttle_ms or {_listed(Effect)}",
            )
        if self.effect is not None and self.error is not None:
            raise FaultRuleError("effect", "a request is answered with an error, or has an effect")
        if self.effect is Effect.OBSERVE and self.is_fault:
            raise FaultRuleError("effect", "whoever observes delays and throttles nobody")
        if self.throttle_ms and self.api is not None and not _can_throttle(self.api):
            raise FaultRuleError("throttle_ms", f"{self.api.name} has no answer that says so")

    def _check_trigger(self) -> None:
        valid = True
        match self.trigger:
            case OnCall(number) | Times(number):
                valid = _is_whole(number) and number >= 1
            case WithProbability(probability):
                valid = not isinstance(probability, bool) and 0 <= probability <= 1
            case EveryTime():
                pass
        if not valid:
            raise FaultRuleError(
                "trigger", f"{self.trigger}: counts are 1 or more, probabilities 0 to 1"
            )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _can_throttle(api: ApiKey) -> bool:
    return any(each.name == "throttle_time_ms" for each in fields_of(API[api].response))
