"""The transaction coordinator of a broker: the tasks around `replication/transactions/rules`.

coordinator     answers requests, and writes each decision to `__transaction_state`
markers         writes the end of a transaction into each of its partitions
asking          asks the coordinator before a leader opens a transaction (KIP-890)
producer_ids    producer ids, from blocks that the controller allocates
"""
