"""ListTransactions (KIP-664, 994, 1152): returns the transactions that a broker coordinates."""

from replication.wire.schema import Kind, array, define, int16, int32, int64, string


@define(kw_only=True)
class ListTransactionsRequest:
    state_filters: list[str] = array(Kind.STRING)
    producer_id_filters: list[int] = array(Kind.INT64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)
    """A regular expression that the whole id matches; null or empty for any id."""


@define(kw_only=True)
class ListedTransaction:
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@define(kw_only=True)
class ListTransactionsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(Kind.STRING)
    transaction_states: list[ListedTransaction] = array(ListedTransaction)
