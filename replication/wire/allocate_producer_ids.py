"""AllocateProducerIds (KIP-730): a broker fetches a block of producer ids to hand out."""

from replication.wire.schema import define, int16, int32, int64


@define(kw_only=True)
class AllocateProducerIdsRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@define(kw_only=True)
class AllocateProducerIdsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
