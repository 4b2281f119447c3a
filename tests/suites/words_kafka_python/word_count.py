"""Counts words; what it has counted is where its group stands."""

from collections import Counter

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition


class WordCount:
    def __init__(self, servers: str, topic: str) -> None:
        self.counts: Counter[str] = Counter()
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=servers.split(","),
            group_id="word-count",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def run(self, lines: int) -> None:
        """Until it has read so many."""
        while lines > 0:
            for partition, records in self._consumer.poll(timeout_ms=500).items():
                for record in records:
                    self.counts.update(record.value.decode().split())
                self._commit(partition, records[-1])
                lines -= len(records)

    def close(self) -> None:
        self._consumer.close()

    def _commit(self, partition: TopicPartition, last: object) -> None:
        after = OffsetAndMetadata(last.offset + 1, "", -1)
        self._consumer.commit({partition: after})
