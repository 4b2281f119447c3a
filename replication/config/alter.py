"""What a change of configuration makes of what was set (ConfigurationControlManager).

    SET  cleanup.policy = compact           -> compact
    APPEND  cleanup.policy = delete         -> compact,delete
    SUBTRACT  cleanup.policy = compact      -> delete
    DELETE  cleanup.policy                  -> nothing set: the next in line is in force

Rule 1: APPEND and SUBTRACT work on lists alone, and begin with Kafka's default where nothing
is set.

Rule 2: all the changes of one topic or broker are made, or none; what comes of them is
checked as a whole by whoever asks.
"""

import enum
from collections.abc import Iterable, Mapping

import attrs

from replication.config.keys import ConfigType, Spec, split_words
from replication.errors import ErrorCode, KafkaError


class ConfigOperation(enum.IntEnum):
    """AlterConfigOp.OpType (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@attrs.frozen
class ConfigChange:
    """One key; `operation` is a `ConfigOperation`, or a number that is none."""

    name: str
    operation: int
    value: str | None


def check_changes(changes: Iterable[ConfigChange]) -> None:
    """KafkaError(INVALID_REQUEST) where they are wrong whatever they are about (ConfigAdminManager)."""
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
    """`current` after `changes`; KafkaError(INVALID_CONFIG) where a key is no list."""
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
    have = list(split_words(text or ""))
    named = split_words(change.value or "")
    if operation is ConfigOperation.APPEND:
        have += [each for each in dict.fromkeys(named) if each not in have]
    else:
        have = [each for each in have if each not in named]
    return ",".join(have)


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
