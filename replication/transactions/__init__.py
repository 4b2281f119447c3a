"""The transaction coordinator of a broker: the tasks around `replication/transactions/rules`.

coordinator     answers requests, and writes each decision to `__transaction_state`
writing         what a write that failed means for its request
markers         writes the end of a transaction into each of its partitions
asking          a leader asks the coordinator before it opens a transaction (KIP-890)
peers           connections to the other brokers
loading         builds the transactions from the log when a leader epoch begins
state_topic     creates `__transaction_state` when it is first needed
"""
