"""Transactions: records in many partitions, of which all are committed or none (KIP-98).

    transaction     the state of one transactional id, and its transitions
    decisions       the answer to a request, and the record that is written before it
    records         the records of `__transaction_state`, in Kafka's bytes

All of it is values; the tasks that carry them are in replication/transactions.
"""
