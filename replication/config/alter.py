"""Changes of configuration, applied to the values set so far (ConfigurationControlManager).

    SET  cleanup.policy = compact           -> compact
    APPEND  cleanup.policy = delete         -> compact,delete
    SUBTRACT  cleanup.policy = compact      -> delete
    DELETE  cleanup.policy                  -> nothing set: the next value in line is used

Rule 1: APPEND and SUBTRACT apply to lists only, and begin with Kafka's default if nothing is
set.

Rule 2: all the changes of one topic or broker are made, or none; the caller checks the result
as a whole.
"""

import enum
from collections.abc import Iterable, Mapping
from contextlib import suppress

from replication.config.keys import ConfigType, Spec
from replication.errors import ErrorCode, KafkaError
from storage.attributes import frozen


class ConfigOperation(enum.IntEnum):
    """The operations on a key (AlterConfigOp.OpType, KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@frozen
class ConfigChange:
    """A change of one key; `operation` is a `ConfigOperation`, or an unknown number."""

    name: str
    operation: int
    value: str | None


def check_changes(changes: Iterable[ConfigChange]) -> None:
    """Raise KafkaError(INVALID_REQUEST) for changes that no resource accepts (ConfigAdminManager)."""
    changes = list(changes)
    if len({each.name for each in changes}) < len(changes):
        raise _refusal("Error due to duplicate config keys")
    nulls = [
        each.name
        for each in changes
        if each.value is None and each.operation != ConfigOperation.DELETE
    ]
    if nulls:
        raise _refusal(f"Null value not supported for : {', '.join(nulls)}")
    for each in changes:
        if each.operation not in set(ConfigOperation):
            raise _refusal(f"Unknown operations type {each.operation}")


def altered(
    current: Mapping[str, str], changes: Iterable[ConfigChange], known: Mapping[str, Spec]
) -> dict[str, str]:
    """Return `current` after `changes`.

    Raise KafkaError(INVALID_CONFIG) if a key that must be a list is not one.
    """
    result = dict(current)
    for change in changes:
        match change.operation:
            case ConfigOperation.DELETE:
                result.pop(change.name, None)
            case ConfigOperation.SET:
                result[change.name] = change.value or ""
            case _:
                result[change.name] = _joined(change, result.get(change.name), known)
    return result


def _joined(change: ConfigChange, current: str | None, known: Mapping[str, Spec]) -> str:
    spec = known.get(change.name)
    operation = ConfigOperation(change.operation)
    if spec is None or spec.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.name} to key {change.name} because its type is not LIST.",
        )
    text = spec.render(spec.default) if current is None else current
    have = [each for each in (text or "").split(",") if each]
    for word in _split_as_java(change.value or ""):
        if operation is ConfigOperation.SUBTRACT:
            with suppress(ValueError):
                have.remove(word)
        elif word not in have:
            have.append(word)
    return ",".join(have)


def _split_as_java(text: str) -> list[str]:
    """Split `text` as Java's String.split(",") does: it drops empty words at the end."""
    return text.rstrip(",").split(",") if text.strip(",") or not text else []


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
