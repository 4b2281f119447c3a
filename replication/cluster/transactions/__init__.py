"""The transaction coordinator: the tasks around replication/transactions, on every broker.

coordinator     who is asked, and what is written down
markers         how a transaction ended, written into each of its partitions
loading         from the log to the transactions, when a reign begins
state_topic     `__transaction_state`, made when it is first asked for
"""

from replication.cluster.transactions.coordinator import TransactionCoordinator
from replication.cluster.transactions.markers import MarkerSender, MarkerWriter

__all__ = ["MarkerSender", "MarkerWriter", "TransactionCoordinator"]
