"""The APIs of Kafka that are supported, and the versions of each; `API` is the table.

`min_version` to `max_version` are the versions that the codec reads and writes. A broker
may advertise lower ones: Produce is advertised from 0, as Apache Kafka 4 does, because
librdkafka stops compressing where the lowest version is 3 (KAFKA-18659); 0 to 2 are still
refused when they come. docs/protocol.md shows this table; a test keeps the two alike.

Rule: an API's messages are imported when they are first asked for. A client speaks ten of
them, and the other thirty would be a third of the time until its first record.
"""

import enum
import importlib
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType

import attrs

from storage.attributes import frozen

_PACKAGE = __name__.rpartition(".")[0]


class ApiKey(enum.IntEnum):
    """Kafka's numbers for its APIs (org.apache.kafka.common.protocol.ApiKeys)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82


@frozen(slots=False)
class Api:
    """One API: the versions spoken, the first that is flexible (KIP-482), its two messages."""

    key: ApiKey
    min_version: int
    max_version: int
    first_flexible: int
    advertised_from: int = attrs.field(
        default=attrs.Factory(lambda self: self.min_version, takes_self=True), kw_only=True
    )
    named_until: int = attrs.field(
        default=attrs.Factory(lambda self: self.max_version, takes_self=True), kw_only=True
    )
    """The newest version in which topics have names; our clients, which ask by name, send none
    that is newer.
    """

    @property
    def name(self) -> str:
        """The name in the classes of messages, such as OffsetForLeaderEpoch."""
        return self.key.name.title().replace("_", "")

    @cached_property
    def request(self) -> type:
        return self._message("Request")

    @cached_property
    def response(self) -> type:
        return self._message("Response")

    def _message(self, which: str) -> type:
        module = importlib.import_module(f"{_PACKAGE}.{self.key.name.lower()}")
        found: type = getattr(module, self.name + which)
        return found

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return version >= self.first_flexible

    def response_header_is_flexible(self, version: int) -> bool:
        # KIP-511: a client that does not know our versions yet must be able to read this header.
        return self.key is not ApiKey.API_VERSIONS and self.is_flexible(version)


NEVER = 2**15
"""The first flexible version of an API that has none."""

# The numbers are the first and the last version, and the first flexible one.
_APIS = (
    Api(ApiKey.PRODUCE, 3, 13, 9, advertised_from=0, named_until=12),
    Api(ApiKey.FETCH, 4, 18, 12),
    Api(ApiKey.LIST_OFFSETS, 0, 11, 6),
    Api(ApiKey.METADATA, 0, 13, 9),
    Api(ApiKey.OFFSET_COMMIT, 2, 10, 8, named_until=9),
    Api(ApiKey.OFFSET_FETCH, 1, 10, 6, named_until=9),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, 3),
    Api(ApiKey.JOIN_GROUP, 0, 9, 6),
    Api(ApiKey.HEARTBEAT, 0, 4, 4),
    Api(ApiKey.LEAVE_GROUP, 0, 5, 4),
    Api(ApiKey.SYNC_GROUP, 0, 5, 4),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
    Api(ApiKey.LIST_GROUPS, 0, 5, 3),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1, NEVER),
    Api(ApiKey.API_VERSIONS, 0, 5, 3),
    Api(ApiKey.CREATE_TOPICS, 2, 7, 5),
    Api(ApiKey.DELETE_TOPICS, 1, 6, 4),
    Api(ApiKey.DELETE_RECORDS, 0, 2, 2),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, 2),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
    Api(ApiKey.END_TXN, 0, 5, 3),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, 1),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 6, 3, named_until=5),
    Api(ApiKey.DESCRIBE_ACLS, 1, 3, 2),
    Api(ApiKey.CREATE_ACLS, 1, 3, 2),
    Api(ApiKey.DELETE_ACLS, 1, 3, 2),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, 2),
    Api(ApiKey.DELETE_GROUPS, 0, 3, 2),
    Api(ApiKey.ELECT_LEADERS, 0, 2, 2),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0),
    Api(ApiKey.OFFSET_DELETE, 0, 0, NEVER),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0),
    Api(ApiKey.VOTE, 0, 2, 0),
    Api(ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, 1),
    Api(ApiKey.END_QUORUM_EPOCH, 0, 1, 1),
    Api(ApiKey.DESCRIBE_QUORUM, 0, 2, 0),
    Api(ApiKey.ALTER_PARTITION, 2, 3, 0),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, 0),
    Api(ApiKey.ENVELOPE, 0, 0, 0),
    Api(ApiKey.FETCH_SNAPSHOT, 0, 1, 0),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
    Api(ApiKey.BROKER_REGISTRATION, 0, 4, 0),
    Api(ApiKey.BROKER_HEARTBEAT, 0, 2, 0),
    Api(ApiKey.UNREGISTER_BROKER, 0, 0, 0),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2, 0),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, 0),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
    Api(ApiKey.CONTROLLER_REGISTRATION, 0, 0, 0),
    Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, 0),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
    Api(ApiKey.ADD_RAFT_VOTER, 0, 1, 0),
    Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, 0),
    Api(ApiKey.UPDATE_RAFT_VOTER, 0, 0, 0),
)

API: Mapping[ApiKey, Api] = MappingProxyType({api.key: api for api in _APIS})
_BY_NUMBER: dict[int, Api] = {int(api.key): api for api in _APIS}


def api_numbered(number: int) -> Api | None:
    """Return the API that a header names; None for an unknown one.

    It is called for every request: `API[ApiKey(number)]` takes ten times as long.
    """
    return _BY_NUMBER.get(number)


class _ApiOf(dict[type, Api]):
    """The API of each class of requests and responses, filled on first use."""

    def __missing__(self, message_class: type) -> Api:
        package, _, module = message_class.__module__.rpartition(".")
        assert package == _PACKAGE, f"{message_class} is no message of the protocol"
        api = API[ApiKey[module.upper()]]
        assert message_class in (api.request, api.response), (
            f"{message_class} travels inside others"
        )
        self[message_class] = api
        return api


api_of: Callable[[type], Api] = _ApiOf().__getitem__
"""Returns the API of a class of requests or responses."""
