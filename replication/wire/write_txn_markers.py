"""WriteTxnMarkers (KIP-98): the coordinator has leaders write the end of a transaction.

From version 2 on it names the version of transactions: under version 2 a marker's epoch is the one
after that of the transaction (KIP-890).
"""

from replication.wire.schema import Kind, array, boolean, define, int8, int16, int32, int64, string


@define(kw_only=True)
class WritableTxnMarkerTopic:
    name: str = string()
    partition_indexes: list[int] = array(Kind.INT32)


@define(kw_only=True)
class WritableTxnMarker:
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    """True: committed."""
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", default=0)


@define(kw_only=True)
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@define(kw_only=True)
class WritableTxnMarkerPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@define(kw_only=True)
class WritableTxnMarkerTopicResult:
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@define(kw_only=True)
class WritableTxnMarkerResult:
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@define(kw_only=True)
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
