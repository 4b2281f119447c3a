"""Brokers and a controller, as stock clients see them.

    cluster.py              a whole cluster in this process
    broker.py               one broker: its logs, its place, its clients
    server.py               connections: requests in order, responses in order
    handlers/               what a broker answers, one module per group of requests
    lifecycle.py            registration, heartbeats, controlled shutdown
    metadata_follower.py    follows the controller's log, as any follower follows a leader
    controller.py           decides, writes its decisions down, and answers
    metadata_log.py         the controller's log, synced before anything is answered

`open_cluster` is where a program begins.
"""
