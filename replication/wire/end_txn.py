"""EndTxn (KIP-98, 890): commits or aborts a transaction.

From version 5 on the response holds the producer's next epoch.
"""

from replication.wire.schema import boolean, define, int16, int32, int64, string


@define(kw_only=True)
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@define(kw_only=True)
class EndTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
