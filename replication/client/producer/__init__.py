"""A producer for trio: records are batched, sent once, and acked or given up.

destinations            the partition of a record
batch                   records on their way, and their delivery
partition_queue         their sequences, and the meaning of a broker's answer
accumulator  appending  records that have no outcome yet, and how they get there
sender                  the task that sends them to the brokers
transactions            begin, commit and abort
producer                the class that programs see
"""

from replication.client.producer.batch import Deliveries, Delivery, RecordMetadata
from replication.client.producer.config import ProducerConfig
from replication.client.producer.producer import Producer

__all__ = ["Deliveries", "Delivery", "Producer", "ProducerConfig", "RecordMetadata"]
