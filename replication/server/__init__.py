"""The network server of a node: connections, logins, the ACLs asked before a handler.

server           reads frames, answers in order (SocketServer)
authentication   SASL on a connection, before and again (KIP-368)
guards/          which resource each request needs, and what a refusal answers
request_metrics  times and counts, in Kafka's names
"""
