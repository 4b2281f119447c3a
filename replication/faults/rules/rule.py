"""A `FaultRule`: which requests go wrong, how, and how often.

    FaultRule(api="PRODUCE", topic="orders", error="NOT_ENOUGH_REPLICAS", trigger=times(2))
    FaultRule(api="PRODUCE", topic="orders", effect="close-after", trigger=once())
    FaultRule(client_id="billing-*", effect="drop-request")
    FaultRule(api="FETCH", topic="orders", partition=0, delay_ms=500)
    FaultRule(api="OFFSET_COMMIT", effect="observe")

    which requests   api, topic, partition, client_id (a pattern), broker, sender, when
    what is done     delay_ms first, then an error or an effect; throttle_ms in the response

A field that is left out matches every request. A trigger chooses among the matching requests:

    call                1    2    3    4   ...
    once()              x
    on_call(3)                    x
    times(2)            x    x
    every_time()        x    x    x    x   ...
    with_probability(p)  each with probability p

Rule 1: a rule that could never have its effect is refused when it is created, with the field that
is wrong (FaultRuleError).

Rule 2: a rule matches requests of clients. It matches requests between brokers (followers' fetches,
forwarded requests, transaction markers) only if `sender` says so, or if only brokers use the API.
"""

import enum
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar

import attrs

from replication.config.known import nearest
from replication.errors import ErrorCode, UnderstudyError
from replication.faults.rules.parts import ANSWERED_AS_A_WHOLE, HAS_PARTITIONS, NAMES
from replication.wire.apis import API, ApiKey
from replication.wire.schema import fields_of
from storage.attributes import frozen

MOST = 2**31 - 1
"""The largest number: an int32, which is the type of `throttle_time_ms`."""
ASKED_BY_BROKERS = {
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.ALTER_PARTITION,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
}


class TriggerRandom(Protocol):
    """The method of `random.Random` that a trigger needs."""

    def random(self) -> float:
        """Return a number of at least 0 and less than 1."""


@frozen
class EveryTime:
    def __str__(self) -> str:
        return "every time"


@frozen
class OnCall:
    number: int

    def __str__(self) -> str:
        return f"on call {self.number}"


@frozen
class Times:
    number: int

    def __str__(self) -> str:
        return "once" if self.number == 1 else f"{self.number} times"


@frozen
class WithProbability:
    probability: float

    def __str__(self) -> str:
        return f"with probability {self.probability:g}"


Trigger: TypeAlias = EveryTime | OnCall | Times | WithProbability


def once() -> Trigger:
    """Apply a rule to the first matching request."""
    return Times(1)


def on_call(number: int) -> Trigger:
    """Apply a rule only to the matching request of this number; the first is 1."""
    return OnCall(number)


def times(number: int) -> Trigger:
    """Apply a rule to the first `number` matching requests."""
    return Times(number)


def every_time() -> Trigger:
    """Apply a rule to every matching request."""
    return EveryTime()


def with_probability(probability: float) -> Trigger:
    """Apply a rule to each matching request with this probability, from 0 to 1."""
    return WithProbability(probability)


def fires(trigger: Trigger, *, call: int, chance: TriggerRandom) -> bool:
    """Return whether the trigger fires for matching request number `call`."""
    assert call >= 1, "calls are counted from 1"
    match trigger:
        case EveryTime():
            return True
        case OnCall(number):
            return call == number
        case Times(number):
            return call <= number
        case WithProbability(probability):
            return chance.random() < probability


E = TypeVar("E", bound=enum.Enum)


class FaultRuleError(UnderstudyError):
    """A rule is invalid; `field` names the part that is wrong."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


class Effect(enum.Enum):
    """An action on a request that is neither an error nor a delay."""

    OBSERVE = "observe"
    """The request is handled as usual, and noted."""
    DROP_REQUEST = "drop-request"
    """The request is not handled; the connection stays open and silent."""
    DROP_ANSWER = "drop-answer"
    """The request is handled; then the connection stays open and silent."""
    CLOSE_BEFORE = "close-before"
    """The request is not handled; the connection is closed."""
    CLOSE_AFTER = "close-after"
    """The request is handled; the connection is closed without a response."""
    CUT_ANSWER = "cut-answer"
    """The request is handled; the connection is closed in the middle of the response."""


class RequestSender(enum.Enum):
    """The sender of the requests that a rule matches."""

    CLIENTS = "clients"
    BROKERS = "brokers"
    ANYONE = "anyone"


def _named(kind: type[E], field: str, given: Any) -> E | None:
    """Return the member given by itself, its value or its case-insensitive name."""
    if given is None or isinstance(given, kind):
        return given
    for member in kind:
        if str(given).lower().replace("_", "-") == member.value:
            return member
    near = nearest(str(given).lower(), (each.value for each in kind))
    raise FaultRuleError(field, f"{given!r} is not one of {_listed(kind)}{near}")


def _sender(given: Any) -> RequestSender | None:
    return _named(RequestSender, "sender", given)


def _effect(given: Any) -> Effect | None:
    return _named(Effect, "effect", given)


def _listed(kind: type[enum.Enum]) -> str:
    return ", ".join(str(each.value) for each in kind)


def _api(given: Any) -> ApiKey | None:
    """Return an API, given as `OFFSET_COMMIT`, `OffsetCommit` or 8."""
    squeezed = str(given).upper().replace("_", "")
    for key in ApiKey:
        if squeezed == key.name.replace("_", "") or (given == key and not isinstance(given, bool)):
            return key
    if given is None:
        return None
    near = nearest(str(given).upper(), ApiKey.__members__)
    raise FaultRuleError(
        "api", f"{given!r} is not an API that brokers serve, such as PRODUCE{near}"
    )


def _error(given: Any) -> ErrorCode | None:
    code = None if isinstance(given, bool) else given
    error = code if isinstance(code, int) else getattr(ErrorCode, str(given).upper(), None)
    if given is None:
        return None
    if error not in set(ErrorCode) or error == ErrorCode.NONE:
        near = nearest(str(given).upper(), (each.name for each in ErrorCode))
        raise FaultRuleError(
            "error", f"{given!r} is not an error of Kafka, such as NOT_LEADER_OR_FOLLOWER{near}"
        )
    return ErrorCode(error)


def _trigger(given: Any) -> Trigger:
    """Return a trigger; refuse the function `once`, which stands for `once()`."""
    if not isinstance(given, Trigger):
        raise FaultRuleError("trigger", f"{given!r} is not a trigger, such as once()")
    return given


@frozen(kw_only=True)
class FaultRule:
    """A rule, as the head of this module describes it; enum values may be given as text."""

    api: ApiKey | None = attrs.field(default=None, converter=_api)
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    """A shell pattern, such as `billing-*`."""
    broker: int | None = None
    """The node that gets the request; 0 is the controller."""
    sender: RequestSender | None = attrs.field(default=None, converter=_sender)
    """By default clients, or brokers for an API that only brokers use."""
    when: Callable[[Any], bool] | None = None
    """A condition on the decoded request (`replication.wire`); JSON has no such field."""
    error: ErrorCode | None = attrs.field(default=None, converter=_error)
    effect: Effect | None = attrs.field(default=None, converter=_effect)
    delay_ms: int = 0
    throttle_ms: int = 0
    """The throttle time in the response, for which clients then wait."""
    trigger: Trigger = attrs.field(factory=EveryTime, converter=_trigger)

    def __attrs_post_init__(self) -> None:
        self._check_types()
        self._check_which()
        self._check_what()
        self._check_trigger()

    @property
    def senders(self) -> RequestSender:
        if self.sender is not None:
            return self.sender
        return RequestSender.BROKERS if self.api in ASKED_BY_BROKERS else RequestSender.CLIENTS

    @property
    def is_fault(self) -> bool:
        """Whether it does more than observe."""
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
        """The action in words."""
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
                raise FaultRuleError(field, f"{getattr(self, field)!r} is not a name")
        for field in ("partition", "broker", "delay_ms", "throttle_ms"):
            value = getattr(self, field)
            if value is not None and not (_is_whole(value) and 0 <= value <= MOST):
                raise FaultRuleError(field, f"{value!r} is not a whole number from 0 to {MOST}")

    def _check_which(self) -> None:
        if self.partition is not None and self.topic is None:
            raise FaultRuleError("topic", "a partition needs a topic")
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
                f"the rule does nothing; give error, delay_ms, throttle_ms or an effect: {_listed(Effect)}",
            )
        if self.effect is not None and self.error is not None:
            raise FaultRuleError("effect", "a rule has either an error or an effect")
        if self.effect is Effect.OBSERVE and self.is_fault:
            raise FaultRuleError("effect", "observe excludes delay_ms and throttle_ms")
        if self.throttle_ms and self.api is not None and not _can_throttle(self.api):
            raise FaultRuleError(
                "throttle_ms", f"responses of {self.api.name} have no throttle time"
            )

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
