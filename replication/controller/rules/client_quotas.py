"""Which client quotas the controller takes (ClientQuotaControlManager, KIP-546, KIP-612).

    entity                          keys
    ip                              connection_creation_rate
    user, client-id, or both        producer_byte_rate, consumer_byte_rate, request_percentage,
                                    controller_mutation_rate

A name of null stands for every entity of its type without a quota of its own. An entity is altered
as a whole or not at all.
"""

from collections import Counter
from collections.abc import Iterable
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final

from replication.controller.rules.decisions import Decision
from replication.errors import ErrorCode, KafkaError
from replication.metadata.rules.image import MetadataImage, QuotaEntity
from replication.metadata.rules.snapshot import entity_data
from replication.wire.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlteration,
    QuotaAlterationResult,
    QuotaOperation,
)
from replication.wire.describe_client_quotas import CLIENT_ID, IP, USER, EntityData
from replication.wire.metadata_records import ClientQuotaRecord, MetadataRecord

_ANY: Final = float("inf")
_LARGEST_INT: Final = 2**31 - 1
_LARGEST_LONG: Final = 2**63 - 1
_OF_CLIENTS: Final = MappingProxyType(
    {
        "producer_byte_rate": _LARGEST_LONG,
        "consumer_byte_rate": _LARGEST_LONG,
        "request_percentage": _ANY,
        "controller_mutation_rate": _ANY,
    }
)
_OF_ADDRESSES: Final = MappingProxyType({"connection_creation_rate": _LARGEST_INT})
"""The keys, and the largest value of each; one with a largest value is a whole number."""
_LEAST_FRACTION: Final = 1e-6


def alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest
) -> Decision[AlterClientQuotasResponse]:
    entities = [_entity(each.entity) for each in request.entries]
    times = Counter(entities)
    records: list[MetadataRecord] = []
    results = []
    for entity, asked in dict(zip(entities, request.entries, strict=True)).items():
        try:
            if times[entity] > 1:
                raise _refusal(f"Ignoring duplicate entity {dict(entity)}")
            records += _changes(image, entity, asked)
        except KafkaError as error:
            results.append(_result(entity, error))
        else:
            results.append(_result(entity))
    return Decision(
        AlterClientQuotasResponse(entries=results), () if request.validate_only else tuple(records)
    )


def _entity(asked: Iterable[EntityData]) -> QuotaEntity:
    """Return an entity; of a type that is named twice the last name counts, as in Kafka."""
    return tuple(sorted({each.entity_type: each.entity_name for each in asked}.items()))


def _result(entity: QuotaEntity, error: KafkaError | None = None) -> QuotaAlterationResult:
    return QuotaAlterationResult(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.detail,
        entity=entity_data(entity),
    )


def _changes(
    image: MetadataImage, entity: QuotaEntity, asked: QuotaAlteration
) -> list[MetadataRecord]:
    """Return the records of one entity; raise KafkaError if something of it is refused."""
    for key, times in Counter(each.key for each in asked.ops).items():
        if times > 1:
            raise _refusal(
                f"Duplicate quota key {key} not updating quota for this entity {dict(entity)}"
            )
    largest = _keys_of(entity)
    current = image.client_quotas.get(entity, {})
    records: list[MetadataRecord] = []
    for each in asked.ops:
        if not each.remove:
            _check_value(each, largest)
        if current.get(each.key) != (None if each.remove else each.value):
            records.append(
                ClientQuotaRecord(
                    entity=entity_data(entity),
                    key=each.key,
                    value=0.0 if each.remove else each.value,
                    remove=each.remove,
                )
            )
    return records


def _keys_of(entity: QuotaEntity) -> MappingProxyType[str, float]:
    if not entity:
        raise _refusal("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _refusal(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _refusal(f"Empty {kind} not supported")
    kinds = dict(entity)
    if IP not in kinds:
        return _OF_CLIENTS
    if len(kinds) > 1:
        raise _refusal(
            "Invalid quota entity combination, IP entity should not be combined with User or"
            " ClientId"
        )
    if (address := kinds[IP]) is not None:
        try:
            ip_address(address)
        except ValueError:
            raise _refusal(f"{address} is not a valid IP.") from None
    return _OF_ADDRESSES


def _check_value(asked: QuotaOperation, largest: MappingProxyType[str, float]) -> None:
    key, value = asked.key, asked.value
    if key not in largest:
        raise _refusal(f"Invalid configuration key {key}")
    if not value > 0:
        raise _refusal(f"Quota {key} must be greater than 0")
    if largest[key] == _ANY:
        return
    if value > largest[key]:
        kind = "an INT" if largest[key] == _LARGEST_INT else "a LONG"
        raise _refusal(f"Proposed value for {key} is too large for {kind}.")
    if value % 1.0 > _LEAST_FRACTION:
        raise _refusal(f"{key} cannot be a fractional value.")


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
