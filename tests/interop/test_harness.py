"""Apache Kafka itself, as the other tests use it: it starts, is asked, dies and comes back."""

from pathlib import Path

import pytest

from replication.cli.probe import broker_ids
from tests.interop import tools
from tests.interop.kafka import HOST, Kafka, KafkaFailedError

pytestmark = pytest.mark.interop


def test_what_a_console_producer_sends_its_consumer_reads_and_the_dump_shows(kafka: Kafka) -> None:
    kafka.create_topic("lines")
    kafka.run_tool(tools.CONSOLE_PRODUCER, "--topic", "lines", stdin="one\ntwo\n")
    reading = ["--topic", "lines", "--from-beginning", "--max-messages", "2"]
    assert kafka.run_tool(tools.CONSOLE_CONSUMER, *reading) == "one\ntwo\n"
    segment = kafka.log_dirs[1] / "lines-0" / "00000000000000000000.log"
    dumped = tools.run_tool(tools.DUMP_LOG, "--files", str(segment), "--print-data-log")
    assert "payload: two" in dumped


@pytest.mark.slow
def test_a_broker_of_three_is_killed_and_comes_back(tmp_path: Path) -> None:
    with Kafka(data_dir=tmp_path, brokers=3) as kafka:
        ports = [int(each.rpartition(":")[2]) for each in kafka.bootstrap_servers.split(",")]
        assert all(broker_ids(HOST, port) == {1, 2, 3} for port in ports)
        kafka.kill(2)
        assert broker_ids(HOST, ports[1]) == set()
        kafka.start(2)
        assert broker_ids(HOST, ports[1]) == {1, 2, 3}


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    wrong = Kafka(data_dir=tmp_path, properties={"log.segment.bytes": "nonsense"})
    with pytest.raises(KafkaFailedError, match="Invalid value nonsense"), wrong:
        pass
