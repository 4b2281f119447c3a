"""A producer for trio: records are batched, sent once, and acked or given up.

partitioner                     which partition a record goes to
batch  partition_queue  run     records on their way, and under which sequences
verdict                         what a broker's answer means
accumulator  room               what has been sent for and is not there yet
sender                          the task that takes it to the brokers
delivery  transaction_calls  producer    what programs see
"""

from replication.client.producer.config import ProducerConfig
from replication.client.producer.delivery import Deliveries, Delivery, RecordMetadata
from replication.client.producer.producer import Producer

__all__ = ["Deliveries", "Delivery", "Producer", "ProducerConfig", "RecordMetadata"]
