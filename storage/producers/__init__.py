"""Idempotent producers of one partition (KIP-98), and what they may append (KIP-890).

state          producer ids with their epochs, sequences and open transactions
checks         may this batch be appended?
snapshot       the .snapshot file, as bytes
verification   a transaction's first batch waits for its coordinator's word
"""
