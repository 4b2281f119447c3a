"""DescribeTransactions (KIP-664): returns the state of transactions, by their ids."""

from replication.wire.schema import Kind, array, define, int16, int32, int64, string


@define(kw_only=True)
class DescribeTransactionsRequest:
    transactional_ids: list[str] = array(Kind.STRING)


@define(kw_only=True)
class TransactionTopic:
    topic: str = string()
    partitions: list[int] = array(Kind.INT32)


@define(kw_only=True)
class DescribedTransaction:
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TransactionTopic] = array(TransactionTopic)


@define(kw_only=True)
class DescribeTransactionsResponse:
    throttle_time_ms: int = int32()
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction)
