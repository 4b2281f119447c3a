import unittest

import pytest
from kafka import KafkaProducer
from word_count import WordCount


class TestWordCount(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def kafka(self, kafka_cluster, kafka_topic):
        self.servers, self.topic = kafka_cluster.bootstrap_servers, kafka_topic
        self.producer = KafkaProducer(bootstrap_servers=self.servers.split(","))
        yield
        self.producer.close()

    def say(self, *lines):
        for line in lines:
            self.producer.send(self.topic, line.encode()).get(60)

    def count(self, lines):
        job = WordCount(self.servers, self.topic)
        job.run(lines)
        job.close()
        return dict(job.counts)

    def test_words_are_counted(self):
        self.say("to be or", "not to be")
        self.assertEqual(self.count(2), {"to": 2, "be": 2, "or": 1, "not": 1})

    def test_a_group_goes_on_where_it_was(self):
        self.say("one")
        self.assertEqual(self.count(1), {"one": 1})
        self.say("two")
        self.assertEqual(self.count(1), {"two": 1})
