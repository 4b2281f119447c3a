"""The pytest plugin: a replicated Kafka as a fixture. pytest finds it once understudy is installed.

    def test_orders(kafka_cluster, kafka_topic):
        producer = KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers)

    kafka_cluster   a `ThreadedCluster` for the session, reset after every test that used it
    kafka_topic     the name of a topic of this test's own, deleted after it
    kafka_faults    fault rules for requests: `kafka_faults.add(api=..., error=...)`; they are
                    removed after the test
    simulated       `scenarios.simulate` with a seed; the test runs once for each of ten seeds

    @pytest.mark.simulation_seeds(100)
        a test with `simulated` runs for so many seeds, or for those of a range

    @pytest.mark.kafka(brokers=1, config={"message.max.bytes": 1000}, partitions=3)
        this test's cluster has so many brokers and these settings, and its topic so many
        partitions. With `controllers=3` it has a quorum of controllers. Clusters are kept for the session, and tests with equal settings share one.
        Marks of a test, its class and its module are merged: the closest decides each setting

    kafka_brokers = 3             in pytest.ini or pyproject.toml: the same for all
    kafka_controllers = 1         the same for the controllers
    kafka_config = key=value      one setting in each line

Rule 1: nothing is imported or started before a test requests a cluster. Each worker of
pytest-xdist has clusters of its own.

Rule 2: the report of a failed test has the events of its cluster while it ran.

Rule 3: a test has used a cluster if it names a fixture of it, or has called it: by
`request.getfixturevalue("kafka_cluster")` a test gets one that it does not name.

Rule 4: a project may have a package `replication` or `storage` of its own: the plugin takes ours
by the name `understudy`, and imports it after pytest has imported the tests.
"""

import gc
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

if TYPE_CHECKING:
    from replication.testing import ThreadedCluster
    from replication.testing.faults import ThreadedFaults
    from scenarios.service import Service, Simulation

MARKER = (
    "kafka(brokers=3, controllers=1, config={}, partitions=1): the cluster and the topic of a test"
)
SEEDS_MARKER = (
    "simulation_seeds(10): the number of seeds of a test with `simulated`, or a range of them"
)
TRACE_LINES = 200
HIDDEN_EVENT = " metadata_applied "  # of every broker, for decisions that have events


class ClusterSettings(NamedTuple):
    """The settings of a test's cluster; tests with equal ones share a cluster."""

    brokers: int
    controllers: int
    config: tuple[tuple[str, str], ...]


class Clusters:
    """The clusters that are up, until the session ends."""

    def __init__(self) -> None:
        self._up: dict[ClusterSettings, ThreadedCluster] = {}
        self._marks: dict[ClusterSettings, tuple[int, int]] = {}

    def get(self, wanted: ClusterSettings) -> "ThreadedCluster":
        if wanted not in self._up:
            with _collected_once():
                from understudy import ConfigError, ThreadedCluster  # noqa: PLC0415 - rule 1

            cluster = ThreadedCluster(
                brokers=wanted.brokers,
                controllers=wanted.controllers,
                config=dict(wanted.config),
            )
            try:
                self._up[wanted] = cluster.start()
            except ConfigError as error:
                pytest.fail(f"the cluster's settings: {error}", pytrace=False)
        return self._up[wanted]

    def mark(self) -> None:
        """Note that a test begins."""
        self._marks = {
            wanted: (cluster.trace.mark, cluster.calls) for wanted, cluster in self._up.items()
        }

    def called(self) -> list[ClusterSettings]:
        """Return the clusters that were called since the present test began."""
        marks = self._marks
        return [
            wanted
            for wanted, cluster in self._up.items()
            if cluster.calls != marks.get(wanted, (0, 0))[1]
        ]

    def trace(self, wanted: ClusterSettings) -> list[str]:
        """Return the events of a cluster since the present test began."""
        if wanted not in self._up:
            return []
        since, _ = self._marks.get(wanted, (0, 0))
        lines = self._up[wanted].trace.lines(since)
        return [line for line in lines if HIDDEN_EVENT not in line]

    def make_whole(self, wanted: ClusterSettings) -> None:
        if wanted in self._up:
            self._up[wanted].reset()

    def stop(self) -> None:
        """Stop all clusters, even if one of them raises an error."""
        with ExitStack() as stack:
            for cluster in self._up.values():
                stack.callback(cluster.stop)


@contextmanager
def _collected_once() -> Iterator[None]:
    """Import modules without looking for garbage in them, then or later.

    Of the processor time that a first cluster takes this is a third: pytest itself asks for five
    full collections at its end. What exists by then is not looked at any more, even if it becomes
    cyclic garbage.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


_CLUSTERS = pytest.StashKey[Clusters]()
_NUMBERS = count(1)


def cluster_settings(config: pytest.Config, marks: "MarkSettings") -> ClusterSettings:
    """Return the cluster that the session's settings and, over them, a test's marks ask for."""
    brokers, controllers, settings = _session_settings(config)
    own = {key: value for (name, key), value in marks.items() if name == "config"}
    return ClusterSettings(
        marks.get(BROKERS, brokers),
        marks.get(CONTROLLERS, controllers),
        tuple(sorted((settings | own).items())),
    )


def _session_settings(config: pytest.Config) -> tuple[int, int, dict[str, str]]:
    try:
        brokers, controllers = (
            int(config.getini(f"kafka_{each}")) for each in ("brokers", "controllers")
        )
        lines = config.getini("kafka_config")
    except (TypeError, ValueError, pytest.UsageError) as error:
        raise pytest.UsageError(
            f"kafka_brokers, kafka_controllers, kafka_config: {error}"
        ) from error
    for name, number in (("brokers", brokers), ("controllers", controllers)):
        if number < 1:
            raise pytest.UsageError(f"kafka_{name} = {number}: {_WHOLE}")
    settings: dict[str, str] = {}
    for line in lines:
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not key:
            raise pytest.UsageError(f"kafka_config: {line!r}: expected key=value, a line each")
        if settings.setdefault(key, value) != value:
            raise pytest.UsageError(f"kafka_config: both {key}={settings[key]} and {key}={value}")
    return brokers, controllers, settings


# -- what marks say

# By the name of the setting, and the key of a setting in `config`.
MarkSettings: TypeAlias = dict[tuple[str, str], Any]
BROKERS, CONTROLLERS, PARTITIONS = ("brokers", ""), ("controllers", ""), ("partitions", "")


def mark_settings(item: pytest.Item) -> MarkSettings:
    """Return the settings of a test's marks; the closest mark decides each setting."""
    found: MarkSettings = {}
    for level in _levels(item):
        try:
            found = _level_settings(level) | found
        except pytest.UsageError as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from None
    return found


def _levels(item: pytest.Item) -> Iterator[list[pytest.Mark]]:
    """Yield the marks of each level, the closest first.

    pytest.param and add_marker, the function, its class and each class that this inherits from,
    its module, its packages.
    """
    for node in item.iter_parents():
        own = [mark for mark in node.own_markers if mark.name == "kafka"]
        holder = getattr(node, "obj", None)
        classes = holder.__mro__ if isinstance(holder, type) else (holder,)
        written = [_marks_written_on(each, own) for each in classes]
        yield [mark for mark in own if not any(mark in level for level in written)]
        yield from written


def _marks_written_on(holder: object, marks: list[pytest.Mark]) -> list[pytest.Mark]:
    """Return the marks of a function, class or module itself, without what a class inherits."""
    stored = vars(holder).get("pytestmark", []) if hasattr(holder, "__dict__") else []
    stored = [getattr(each, "mark", each) for each in _as_list(stored)]
    return [mark for mark in marks if any(mark is each for each in stored)]


def _level_settings(marks: list[pytest.Mark]) -> MarkSettings:
    found: MarkSettings = {}
    for mark in marks:
        for (name, key), value in _settings_of_mark(mark).items():
            other = found.setdefault((name, key), value)
            if other != value:
                both = " and ".join(f"{key or name}={each!r}" for each in (value, other))
                raise pytest.UsageError(f"@pytest.mark.kafka is there twice, with {both}")
    return found


def _settings_of_mark(mark: pytest.Mark) -> MarkSettings:
    """Return the settings of one mark; raise UsageError if they are not possible."""
    given = mark.kwargs
    if mark.args or given.keys() - {"brokers", "controllers", "config", "partitions"}:
        words = [*map(repr, mark.args), *(f"{key}={value!r}" for key, value in given.items())]
        raise pytest.UsageError(
            "@pytest.mark.kafka takes brokers, controllers, config and partitions:"
            f" {', '.join(words)}"
        )
    config = given.get("config", {})
    if not isinstance(config, Mapping):
        raise pytest.UsageError(
            f"@pytest.mark.kafka(config={config!r}): expected a dict of settings"
        )
    numbers: MarkSettings = {(name, ""): value for name, value in given.items() if name != "config"}
    for (name, _), number in numbers.items():
        if type(number) is not int or number < 1:
            raise pytest.UsageError(f"@pytest.mark.kafka({name}={number!r}): {_WHOLE}")
    return numbers | {("config", str(key)): str(value) for key, value in config.items()}


def _as_list(marks: Any) -> list[Any]:
    return list(marks) if isinstance(marks, list | tuple) else [marks]


# pytest before 8.4 has neither: a setting is text there, and a test's name shows its cluster.
_HIDDEN = getattr(pytest, "HIDDEN_PARAM", "kafka")
_INT: Any = "int" if hasattr(pytest, "HIDDEN_PARAM") else None
_WHOLE = "expected a whole number of at least 1"

# -- pytest's hooks


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("kafka_brokers", "how many brokers kafka_cluster has", type=_INT, default=3)
    parser.addini("kafka_controllers", "how many controllers it has", type=_INT, default=1)
    parser.addini("kafka_config", "settings of its brokers, key=value", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.addinivalue_line("markers", SEEDS_MARKER)
    config.stash[_CLUSTERS] = Clusters()
    _session_settings(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _CLUSTERS in config.stash:  # absent if another plugin has ended pytest before
        config.stash[_CLUSTERS].stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the session's fixture for a test that is marked, and `simulated` by its seeds."""
    if "simulated" in metafunc.fixturenames:
        seeds = _seeds(metafunc.definition)
        metafunc.parametrize(
            "simulated", seeds, ids=[f"seed-{each}" for each in seeds], indirect=True
        )
    if "kafka_cluster" in metafunc.fixturenames and (given := mark_settings(metafunc.definition)):
        wanted = cluster_settings(metafunc.config, given)
        ids: Any = [_HIDDEN]
        metafunc.parametrize("kafka_cluster", [wanted], ids=ids, indirect=True, scope="session")


def _seeds(item: pytest.Item) -> range:
    mark = item.get_closest_marker("simulation_seeds")
    given = (10,) if mark is None else (*mark.args, *mark.kwargs.values())
    seeds = given[0] if len(given) == 1 else None
    if type(seeds) is int:
        seeds = range(1, seeds + 1)
    if not seeds or not isinstance(seeds, range):
        raise pytest.UsageError(
            f"{item.nodeid}: @pytest.mark.simulation_seeds{given}: {_WHOLE}, or a range"
        )
    return seeds


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[_CLUSTERS].mark()
    wanted = _named_cluster(item)
    if wanted is not None and wanted != cluster_settings(item.config, mark_settings(item)):
        pytest.fail(
            "@pytest.mark.kafka: brokers, controllers and config have no effect on a method of"
            " unittest.TestCase, in pytest.param or by add_marker; mark the test function, or"
            " set them in pytest.ini or pyproject.toml",
            pytrace=False,
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    report = yield
    if report.failed:
        for wanted in _used_by(item):
            lines = item.config.stash[_CLUSTERS].trace(wanted)[-TRACE_LINES:]
            report.sections += [("Kafka's events", "\n".join(lines))] if lines else []
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    try:
        yield
    finally:  # the next test's cluster is whole even if a fixture has failed
        with ExitStack() as stack:
            for wanted in _used_by(item):
                stack.callback(item.config.stash[_CLUSTERS].make_whole, wanted)


def _used_by(item: pytest.Item) -> set[ClusterSettings]:
    """Return the clusters that a test names or has called (rule 3)."""
    wanted = _named_cluster(item)
    return {*item.config.stash[_CLUSTERS].called(), *([] if wanted is None else [wanted])}


def _named_cluster(item: pytest.Item) -> ClusterSettings | None:
    """Return the settings of the cluster that a test names; None if it names none of ours."""
    if "kafka_cluster" not in getattr(item, "fixturenames", ()):
        return None
    callspec = getattr(item, "callspec", None)
    params = {} if callspec is None else callspec.params
    wanted = params.get("kafka_cluster", cluster_settings(item.config, {}))
    return wanted if isinstance(wanted, ClusterSettings) else None


# -- the fixtures


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> "ThreadedCluster":
    """Return a cluster to test against: `replication.testing.ThreadedCluster`."""
    wanted = getattr(request, "param", None) or cluster_settings(request.config, {})
    if not isinstance(wanted, ClusterSettings):
        pytest.fail(
            f"kafka_cluster takes no parameter, such as {wanted!r}: use @pytest.mark.kafka(...)",
            pytrace=False,
        )
    return request.config.stash[_CLUSTERS].get(wanted)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_cluster: "ThreadedCluster") -> Iterator[str]:
    """Yield the name of a new topic of this test's own."""
    partitions = mark_settings(request.node).get(PARTITIONS, 1)
    name = f"topic-{next(_NUMBERS)}"
    kafka_cluster.create_topic(name, partitions=partitions)
    yield name
    kafka_cluster.reset()
    _delete(kafka_cluster, name)


def _delete(cluster: "ThreadedCluster", topic: str) -> None:
    """Delete a topic unless its test has deleted it."""
    from understudy import ErrorCode, KafkaError  # noqa: PLC0415 - rule 1

    try:
        cluster.delete_topic(topic)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise


@pytest.fixture
def kafka_faults(kafka_cluster: "ThreadedCluster") -> "Iterator[ThreadedFaults]":
    """Yield the fault rules of the cluster: `add` takes a `replication.faults.FaultRule`, or its
    words.
    """
    yield kafka_cluster.faults
    kafka_cluster.faults.clear()


@pytest.fixture
def simulated(request: pytest.FixtureRequest) -> "Callable[..., Simulation]":
    """Return `scenarios.simulate` with this test's seed; it raises what went wrong."""
    from understudy import scenarios  # noqa: PLC0415 - rule 1

    def run(service: "Service", **arguments: Any) -> "Simulation":
        simulation: Simulation = scenarios.simulate(service, seed=request.param, **arguments)
        simulation.check()
        return simulation

    return run
