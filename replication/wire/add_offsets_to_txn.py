"""AddOffsetsToTxn (KIP-98): adds the offsets of a group to a transaction."""

from replication.wire.schema import define, int16, int32, int64, string


@define(kw_only=True)
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@define(kw_only=True)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
