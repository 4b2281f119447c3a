import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer
from thumbnails import Pool

PICTURES = [b"picture %d" % number for number in range(60)]


class Album:
    """What the workers have done, and how often."""

    def __init__(self):
        self._lock = threading.Lock()
        self.done = []

    def add(self, picture):
        with self._lock:
            self.done.append(picture)


def upload(servers, topic, pictures):
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number, picture in enumerate(pictures):
        producer.produce(topic, picture, partition=number % 6)
    assert producer.flush(60) == 0


@pytest.mark.kafka(partitions=6)
def test_everybody_has_work(kafka_cluster, kafka_topic):
    album = Album()
    with Pool(kafka_cluster.bootstrap_servers, kafka_topic, album.add, size=3) as pool:
        kafka_cluster.until(lambda: pool.busy == {0, 1, 2})
        with ThreadPoolExecutor(2) as uploads:
            for part in (PICTURES[:30], PICTURES[30:]):
                uploads.submit(upload, kafka_cluster.bootstrap_servers, kafka_topic, part)
        kafka_cluster.until(lambda: set(album.done) == set(PICTURES))


@pytest.mark.kafka(partitions=6)
def test_a_broker_dies_under_them(kafka_cluster, kafka_topic):
    album = Album()
    upload(kafka_cluster.bootstrap_servers, kafka_topic, PICTURES[:30])
    with Pool(kafka_cluster.bootstrap_servers, kafka_topic, album.add, size=2):
        kafka_cluster.until(lambda: len(album.done) > 5)
        kafka_cluster.kill_leader(kafka_topic)
        upload(kafka_cluster.bootstrap_servers, kafka_topic, PICTURES[30:])
        kafka_cluster.until(lambda: set(album.done) == set(PICTURES), timeout=60)
