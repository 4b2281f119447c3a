"""The transaction coordinator: the tasks around replication/transactions, on every broker.

coordinator     who is asked, and what is written down
writing         what came of writing it down
markers         how a transaction ended, written into each of its partitions
asking          leaders ask coordinators before they open a transaction in a log
peers           lines to the other brokers
loading         from the log to the transactions, when a reign begins
state_topic     `__transaction_state`, made when it is first asked for
"""

from replication.cluster.transactions.asking import CoordinatorQuestions
from replication.cluster.transactions.coordinator import TransactionCoordinator
from replication.cluster.transactions.markers import MarkerSender, MarkerWriter
from replication.cluster.transactions.peers import PeerChannels

__all__ = [
    "CoordinatorQuestions",
    "MarkerSender",
    "MarkerWriter",
    "PeerChannels",
    "TransactionCoordinator",
]
