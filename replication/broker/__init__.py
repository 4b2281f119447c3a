"""A broker: its lifecycle, and the handlers that answer Kafka's requests.

broker         one broker, from its registration to its controlled shutdown
lifecycle      registration, heartbeats, fencing
wiring         which part gets which: the only place that creates them
handlers/      one module for each group of requests: decode, call one room, encode
alter_partition_manager   asks the controller to change an ISR
assignments    says in which log directory each replica lies (KIP-858)
"""
