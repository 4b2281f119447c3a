"""The network server of a node: connections, logins, and the ACLs that a request needs.

server           reads frames, answers in order (SocketServer)
authentication   SASL on a connection, and its renewal (KIP-368)
guards/          the resources that each request needs, and the answers that refuse it
request_metrics  times and counts, in Kafka's names
"""
