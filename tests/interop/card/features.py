"""The features that the card tries with each client; a client's module has a function for each.

A probe is `def name(servers: str, topic: str) -> None`: it returns where the client does it against
our brokers, and raises where not. A module without that name is of a client that does not offer it.
`topic` is there, with two partitions and three replicas, and is nobody else's.
"""

from typing import Final

FEATURES: Final = {
    "produce_and_consume": "produce with acks=all, consume",
    "fetch_sessions": "incremental fetch sessions (KIP-227)",
    "compression": "gzip, snappy, lz4, zstd",
    "idempotence": "idempotent producer (KIP-98)",
    "headers_and_nulls": "headers, null keys, null values",
    "offsets_by_time": "offsets by time",
    "group_goes_on": "group: commits, leaves, goes on",
    "group_shares": "group: two members share",
    "cooperative": "group: cooperative rebalancing (KIP-429)",
    "static_member": "group: static member (KIP-345)",
    "new_group_protocol": "group: group.protocol=consumer (KIP-848)",
    "transactions": "transactions: commit, abort, read_committed",
    "offsets_in_transaction": "offsets in a transaction (KIP-447)",
    "topics": "admin: topics made, described, grown, deleted",
    "configs": "admin: configurations",
    "delete_records": "admin: records deleted (KIP-107)",
    "groups": "admin: groups described, moved, deleted",
    "elections": "admin: preferred leaders (KIP-460)",
    "reassignments": "admin: reassignments (KIP-455)",
}

CLIENTS: Final = {
    "ours": "tests.interop.card.ours",
    "java": "tests.interop.card.java",
    "librdkafka": "tests.interop.card.librdkafka",
    "kcat": "tests.interop.card.kcat",
    "aiokafka": "tests.interop.card.asyncio_client",
    "kafka-python": "tests.interop.card.kafka_python",
}

SENT: Final = [b"%d" % number for number in range(10)]
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
LONG_AGO: Final = 1_600_000_000_000
SECONDS: Final = 40.0
