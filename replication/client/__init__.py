"""A trio-native Kafka client, after the parts that readers of Kafka's know.

    config  errors              Kafka's keys and Kafka's errors
    backoff                     how long to wait before the next attempt
    connection  requests        one connection, and what is asked over it
    network_client  nodes       all connections: versions, back-off, time limits
    cluster_view  metadata      who leads what, and keeping that fresh
    producer/                   records are batched, sent once, and acked or given up

of a consumer, without a network:

    position  subscription      what is read, and where in it (KIP-320)
    offset_reset                auto.offset.reset
    fetch_requests              which partitions are fetched from whom next (KIP-227, KIP-392)
    completed_fetch  records    an answer, read as far as its records were taken
    fetch_buffer                what was fetched and not handed over
    fetch_collector             what is handed over, and what errors mean
    consumer_metrics  consumer_errors

Everything that differs between two runs comes in through `replication.net.seams`, so a
client runs over TCP and in the simulator alike. asyncio is nowhere.
"""

from replication.client.config import ClientConfig
from replication.client.producer import Producer

__all__ = ["ClientConfig", "Producer"]
