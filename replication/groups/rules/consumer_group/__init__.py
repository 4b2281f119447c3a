"""Consumer groups of the new protocol (KIP-848): the coordinator assigns, members reconcile.

    records.py    the records of `__consumer_offsets`, in Kafka's bytes

No broker serves the protocol yet.
"""
