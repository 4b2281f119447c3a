"""A whole cluster in this process: its brokers, its controller, and how a test steers them.

cluster    `open_cluster` is where a program begins
steering   kill, freeze and cut off nodes
"""
