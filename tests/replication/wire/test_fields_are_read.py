"""Every field of a request is read by the code that answers it, or is named here with the reason."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from replication.wire.apis import API
from replication.wire.schema import fields_of

ROOT: Final = Path(__file__).parents[3] / "replication"
# These packages ask, and answer nothing.
ASKING: Final = {"client", "mirror", "cli", "verify", "testing", "faults"}
UNREAD: Final = {
    "Fetch.replica_state": "read by FetchRequest.replica, in the message itself",
    "BeginQuorumEpoch.leader_endpoints.name": "read where all endpoints are (raft/rules/voters.py)",
    "EndQuorumEpoch.leader_endpoints.name": "the same",
    "InitProducerId.enable2_pc": "two-phase commit, in a version that is not offered (KIP-939)",
    "InitProducerId.keep_prepared_txn": "the same",
    "DescribeQuorum.topics.partitions.partition_index": "compared within the whole item",
    "BrokerRegistration.listeners.security_protocol": "each broker's file maps names to protocols",
    "BrokerRegistration.is_migrating_zk_broker": "there is no ZooKeeper to migrate from",
    "BrokerHeartbeat.cordoned_log_dirs": "KIP-1066, which Kafka 4.1 does not have",
    "ControllerRegistration.zk_migration_ready": "there is no ZooKeeper to migrate from",
    "ControllerRegistration.listeners.security_protocol": "stands in the record as it came",
    "ControllerRegistration.features.min_supported_version": "the same",
    "ControllerRegistration.features.max_supported_version": "the same",
    "AddRaftVoter.timeout_ms": "the leader has a limit of its own for each change of voters",
    "UpdateRaftVoter.kraft_version_feature.min_supported_version": "kept as it came",
    "UpdateRaftVoter.kraft_version_feature.max_supported_version": "the same",
}


def names(kind: type, path: str) -> Iterator[tuple[str, str]]:
    """Yield each field of a message, with where it stands."""
    for field in fields_of(kind):
        yield f"{path}.{field.name}", field.name
        if isinstance(field.wire.items, type):
            yield from names(field.wire.items, f"{path}.{field.name}")


def test_every_field_of_a_request_is_read_or_there_is_a_reason() -> None:
    sources = [
        text
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in ASKING | {"wire"}
        and "wire." in (text := path.read_text())
    ]
    words = [(text, set(re.findall(r"\.(\w+)", text))) for text in sources]
    unread = set()
    for api in API.values():
        module, request = f"wire.{api.key.name.lower()} import", api.request.__name__
        read = set().union(*(each for text, each in words if module in text or request in text))
        unread |= {path for path, name in names(api.request, api.name) if name not in read}
    assert unread == UNREAD.keys()
