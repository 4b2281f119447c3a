"""A whole cluster in this process: its brokers, its controller, and how a test steers them.

interface  what can be asked of a running cluster, however its nodes run
cluster    nodes in this process, over any seams; a program begins with `open_cluster`
"""
