"""The plugin as users meet it: in a pytest and a folder of their own."""

from textwrap import dedent

import pytest

from tests.deep import one_in
from tests.plugin.conftest import Run

pytestmark = pytest.mark.slow

PLAIN = """
    import pytest, socket

    seen = []

    @pytest.fixture(scope="module")
    def servers(kafka_cluster):
        return kafka_cluster.bootstrap_servers

    def test_a_cluster_is_there(servers, kafka_cluster, kafka_topic):
        assert len(servers.split(",")) == len(kafka_cluster.brokers) == 3
        assert kafka_cluster.isr(kafka_topic) == [1, 2, 3]
        seen.append((servers, kafka_topic))
        kafka_cluster.kill_broker(2)

    def test_it_is_the_same_one_and_whole_again(servers, kafka_cluster, kafka_topic):
        assert seen[0][0] == servers
        assert seen[0][1] != kafka_topic
        assert kafka_cluster.brokers == [1, 2, 3]

    @pytest.mark.kafka(brokers=1, config={"num.partitions": 7}, partitions=2)
    def test_a_marked_one_has_its_own(kafka_cluster, kafka_topic, servers):
        assert kafka_cluster.brokers == [1]
        assert kafka_cluster.bootstrap_servers == servers != seen[0][0]
        assert kafka_cluster.leader(kafka_topic, 1) == 1
        kafka_cluster.create_topic("seven")
        assert kafka_cluster.leader("seven", 0) == 1

    def test_after_it_the_first_is_back(servers):
        assert servers == seen[0][0]
"""


def test_one_cluster_serves_the_session_and_is_whole_for_every_test(run: Run) -> None:
    result = run(PLAIN, "-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*::test_a_marked_one_has_its_own PASSED*"])


@pytest.mark.deep
def test_it_is_whole_for_the_next_test_whatever_fails_in_a_teardown(run: Run) -> None:
    source = """
        import pytest

        @pytest.fixture
        def fails_at_its_end(kafka_cluster):
            yield
            raise ZeroDivisionError

        def test_kills(kafka_cluster, fails_at_its_end):
            kafka_cluster.kill_broker(2)

        def test_after_it(kafka_cluster):
            assert kafka_cluster.brokers == [1, 2, 3]
    """
    run(source).assert_outcomes(passed=2, errors=1)


@pytest.mark.deep
def test_it_is_whole_for_the_next_test_if_it_was_requested_by_name(run: Run) -> None:
    """A test that calls `getfixturevalue` does not name the fixture beforehand."""
    source = """
        def test_kills(request):
            kafka_cluster = request.getfixturevalue("kafka_cluster")
            kafka_cluster.faults.add(effect="observe")
            kafka_cluster.kill_broker(2)
            assert False

        def test_after_it(request):
            kafka_cluster = request.getfixturevalue("kafka_cluster")
            assert kafka_cluster.brokers == [1, 2, 3]
            assert kafka_cluster.faults.rules == []

        def test_of_something_else():
            assert False
    """
    result = run(source)
    result.assert_outcomes(passed=1, failed=2)
    assert sum("Kafka's events" in line for line in result.outlines) == 1
    result.stdout.fnmatch_lines(["*test_kills*", "*Kafka's events*", "*test_of_something_else*"])


@pytest.mark.deep
def test_a_test_may_delete_its_own_topic(run: Run) -> None:
    source = """
        def test_deletes(kafka_cluster, kafka_topic):
            kafka_cluster.delete_topic(kafka_topic)
    """
    run(source, ini="kafka_brokers = 1").assert_outcomes(passed=1)


def test_a_conftest_that_ends_pytest_is_heard(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(
        """
        import pytest

        def pytest_configure(config):
            raise pytest.UsageError("no such environment")
        """
    )
    result = run("def test_one(): ...")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: no such environment"])
    result.stderr.no_fnmatch_line("*KeyError*")


@pytest.mark.deep
def test_it_works_under_xdist(run: Run) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        @pytest.mark.kafka(brokers=1)
        def test_each_worker_has_its_own(kafka_cluster, kafka_topic, number):
            assert kafka_cluster.leader(kafka_topic) == 1
    """
    run(source, "-n", "2").assert_outcomes(passed=4)


def test_a_failing_test_is_reported_with_what_happened_in_its_cluster(run: Run) -> None:
    source = """
        def test_before(kafka_cluster):
            kafka_cluster.create_topic("of-another-test")

        def test_fails(kafka_cluster, kafka_topic, kafka_faults):
            late = kafka_faults.add(api="CREATE_TOPICS", delay_ms=1)
            kafka_cluster.create_topic("late")
            assert late.hits == 1
            kafka_cluster.kill_broker(1)
            kafka_cluster.until(lambda: 1 not in kafka_cluster.isr(kafka_topic))
            assert False

        def test_after_it(kafka_faults):
            assert kafka_faults.rules == []
    """
    result = run(source)
    result.assert_outcomes(passed=2, failed=1)
    said = result.stdout.str()
    assert "Kafka's events" in said
    assert "broker_fenced" in said
    assert "metadata_applied" not in said
    assert "kafka_cluster = ThreadedCluster(brokers=3, controllers=1" in said
    assert "api=CREATE_TOPICS" in said
    assert "fault=delay1ms" in said
    assert "topic=of-another-test topic_id" not in said


@pytest.mark.deep
def test_settings_of_the_session(run: Run) -> None:
    source = """
        def test_one(kafka_cluster):
            assert kafka_cluster.brokers == [1]
            assert kafka_cluster.config["num.partitions"] == "5"
    """
    ini = "kafka_brokers = 1\nkafka_config = num.partitions = 5"
    run(source, ini=ini).assert_outcomes(passed=1)


@pytest.mark.deep
def test_a_marker_that_says_something_else_is_refused(run: Run) -> None:
    source = """
        import pytest

        @pytest.mark.kafka(nodes=3)
        def test_one(kafka_cluster): ...
    """
    result = run(source)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*takes brokers, controllers, config and partitions*nodes*"])


STACKED = """
    import pytest

    pytestmark = pytest.mark.kafka(brokers=2, config={"num.partitions": 5, "log.roll.ms": 9000})

    def shape(cluster, topic):
        configs = cluster.config["num.partitions"], cluster.config["log.roll.ms"]
        return len(cluster.brokers), *configs, partitions(cluster, topic)

    def partitions(cluster, topic):
        return sum(bool(cluster.replicas(topic, each)) for each in range(9))

    @pytest.mark.kafka(partitions=3)
    @pytest.mark.kafka(config={"num.partitions": 7})
    @pytest.mark.kafka(brokers=1)
    def test_stacked_marks_all_count(kafka_cluster, kafka_topic):
        assert shape(kafka_cluster, kafka_topic) == (1, "7", "9000", 3)

    @pytest.mark.kafka(partitions=4, config={"log.roll.ms": 8000})
    class Base:
        pass

    @pytest.mark.kafka(partitions=2)
    class TestOfAClass(Base):
        def test_the_class_goes_before_its_base_and_that_before_the_module(
            self, kafka_cluster, kafka_topic
        ):
            assert shape(kafka_cluster, kafka_topic) == (2, "5", "8000", 2)

        @pytest.mark.kafka(partitions=1)
        def test_the_function_goes_before_its_class(self, kafka_cluster, kafka_topic):
            assert shape(kafka_cluster, kafka_topic) == (2, "5", "8000", 1)

    @pytest.mark.parametrize(
        "expected", [2, pytest.param(3, marks=pytest.mark.kafka(partitions=3))]
    )
    @pytest.mark.kafka(partitions=2)
    def test_a_parameter_goes_before_its_function(kafka_cluster, kafka_topic, expected):
        assert partitions(kafka_cluster, kafka_topic) == expected
"""


@pytest.mark.deep
def test_marks_of_all_levels_are_merged_and_the_closest_decides_each_setting(run: Run) -> None:
    run(STACKED).assert_outcomes(passed=5)


CONTRADICTING = {
    """
    @pytest.mark.kafka(brokers=1)
    @pytest.mark.kafka(brokers=2)
    def test_one(kafka_topic): ...
    """: "*test_mark_0.py::test_one: @pytest.mark.kafka is there twice, with brokers=1 and brokers=2*",
    """
    pytestmark = [
        pytest.mark.kafka(config={"num.partitions": 5}),
        pytest.mark.kafka(config={"num.partitions": 6}),
    ]
    def test_one(kafka_topic): ...
    """: "*is there twice, with num.partitions='6' and num.partitions='5'*",
    """
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.kafka(brokers=2))])
    def test_one(kafka_topic, x): ...
    """: "*brokers, controllers and config have no effect on *in pytest.param*",
    """
    @pytest.mark.parametrize("kafka_cluster", [1], indirect=True)
    def test_one(kafka_cluster): ...
    """: "*kafka_cluster takes no parameter, such as 1: use @pytest.mark.kafka(...)*",
    """
    @pytest.mark.kafka(brokers=1, config={"num.partitons": 1})
    def test_one(kafka_cluster): ...
    """: "*unknown key num.partitons; did you mean num.partitions?*",
}


@pytest.mark.deep
def test_marks_that_would_be_dropped_are_refused(run: Run, pytester: pytest.Pytester) -> None:
    """Each is in a file of its own: pytest reads a file no further after the first such error."""
    files = {
        f"test_mark_{number}": f"import pytest\n{dedent(source)}"
        for number, source in enumerate(CONTRADICTING)
    }
    pytester.makepyfile(**files)
    result = run("", "--continue-on-collection-errors")
    result.assert_outcomes(errors=len(CONTRADICTING))
    for said in CONTRADICTING.values():
        result.stdout.fnmatch_lines([said])


REFUSED_MARKS = {
    "brokers='3'": "*kafka(brokers='3'): expected a whole number of at least 1*",
    "brokers=0": "*kafka(brokers=0): expected a whole number of at least 1*",
    "partitions=True": "*kafka(partitions=True): expected a whole number of at least 1*",
    "config='a=b'": "*kafka(config='a=b'): expected a dict of settings*",
    "3": "*takes brokers, controllers, config and partitions: 3*",
}


def test_a_marker_whose_values_cannot_be_is_refused(run: Run, pytester: pytest.Pytester) -> None:
    """Each is in a file of its own: pytest reads a file no further after the first such error."""
    files = {
        f"test_mark_{number}": f"import pytest\n@pytest.mark.kafka({mark})\ndef test_one(kafka_topic): ..."
        for number, mark in enumerate(REFUSED_MARKS)
    }
    pytester.makepyfile(**files)
    result = run("", "--continue-on-collection-errors")
    result.assert_outcomes(errors=len(REFUSED_MARKS))
    for name, said in zip(files, REFUSED_MARKS.values(), strict=True):
        result.stdout.fnmatch_lines([f"*ERROR collecting {name}.py*", said])
    assert "INTERNALERROR" not in result.stdout.str()
    assert "Kafka's events" not in result.stdout.str()


@pytest.mark.parametrize(
    ("ini", "said"),
    one_in(
        4,
        [
            (
                "kafka_brokers = three",
                "ERROR: kafka_brokers, kafka_controllers, kafka_config: *three*",
            ),
            (
                "kafka_brokers = 0",
                "ERROR: kafka_brokers = 0: expected a whole number of at least 1",
            ),
            ("kafka_config = num.partitions", "ERROR: kafka_config: 'num.partitions': *key=value*"),
            (
                "kafka_config =\n  num.partitions=1\n  num.partitions=2",
                "ERROR: kafka_config: both num.partitions=1 and num.partitions=2",
            ),
        ],
    ),
)
def test_settings_of_the_session_that_cannot_be_are_refused(run: Run, ini: str, said: str) -> None:
    result = run("def test_one(): ...", ini=ini)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


@pytest.mark.deep
def test_a_number_of_brokers_may_stand_in_toml(run: Run, pytester: pytest.Pytester) -> None:
    source = "def test_one(kafka_cluster): assert kafka_cluster.brokers == [1]"
    for table in ("tool.pytest.ini_options", "tool.pytest"):
        pytester.makepyprojecttoml(f"[{table}]\nkafka_brokers = 1\n")
        run(source, "-c", "pyproject.toml").assert_outcomes(passed=1)


@pytest.mark.deep
def test_marks_without_effect_on_a_method_of_unittest_are_refused(run: Run) -> None:
    source = """
        import unittest
        import pytest

        class Orders(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def _cluster(self, kafka_cluster, kafka_topic):
                self.cluster, self.topic = kafka_cluster, kafka_topic

            @pytest.mark.kafka(partitions=2)
            def test_it_has_the_session_s(self):
                assert self.cluster.brokers == [1]
                assert self.cluster.leader(self.topic, 1) == 1

            @pytest.mark.kafka(brokers=2)
            def test_of_its_own(self): ...
    """
    result = run(source, ini="kafka_brokers = 1")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*brokers, controllers and config have no effect on a method of unittest*"]
    )


def test_tests_without_a_cluster_start_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of all plugins that are installed, it alone: some of them import trio.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    source = """
        import sys

        def test_nothing_is_imported():
            assert not {"trio", "attrs", "replication", "storage"} & set(sys.modules)
    """
    run(source, "-p", "understudy.pytest_plugin").assert_outcomes(passed=1)


STYLES = """
    import asyncio, threading
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from confluent_kafka import Producer
    import trio

    async def of_asyncio(servers, topic):
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait(topic, b"asyncio")
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            return (await consumer.getone()).value

    def test_asyncio(kafka_cluster, kafka_topic):
        assert asyncio.run(of_asyncio(kafka_cluster.bootstrap_servers, kafka_topic)) == b"asyncio"

    def test_threads(kafka_cluster, kafka_topic):
        offsets = []
        def produce():
            producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
            producer.produce(
                kafka_topic, b"thread", on_delivery=lambda error, message: offsets.append(message.offset())
            )
            producer.flush(10)
        threads = [threading.Thread(target=produce) for _ in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert sorted(offsets) == [0, 1, 2]

    async def test_trio(kafka_cluster, kafka_topic):
        from replication.client import Producer
        async with Producer(kafka_cluster.bootstrap_servers) as producer:
            assert (await producer.send(kafka_topic, b"trio")).offset == 0
"""


@pytest.mark.client
def test_every_style_of_test_reaches_it(run: Run) -> None:
    pytest.importorskip("aiokafka")
    pytest.importorskip("confluent_kafka")
    run(STYLES, ini="trio_mode = true").assert_outcomes(passed=3)
