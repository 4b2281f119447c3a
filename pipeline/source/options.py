"""The options of a read: those of Spark's Kafka source, and a few of our own.

    what    subscribe | subscribePattern | assign         files: all topics if none is given
    as      value.format, value.*, key.*, schema.*        fields of values and keys as columns
    where   kafka.bootstrap.servers, kafka.*  |  path
    from    startingTimestamp > startingOffsetsByTimestamp > startingOffsets
    to      endingTimestamp   > endingOffsetsByTimestamp   > endingOffsets       batch only

Rule 1: an unknown option is refused by its name, with the nearest known name as a hint. Spark's
source ignores unknown options.

Rule 2: option names are case-insensitive; JSON and topic names are case-sensitive.

(KafkaSourceProvider in Spark; docs/pipeline.md has the table.)
"""

import re
from collections.abc import Mapping
from typing import Final

import attrs

from pipeline.source.errors import OptionError
from pipeline.source.format_options import FORMAT, FormatOptions, parse_formats
from pipeline.source.given import KAFKA, GivenOptions, lowered
from pipeline.source.offsets import parse_numbers, parse_partitions
from replication.client.config import ClientConfig
from replication.config.known import nearest
from replication.errors import ConfigError
from replication.wire.list_offsets import EARLIEST, LATEST
from storage.types import TopicPartition

COMMON: Final = (
    *("path", "paths", "subscribe", "subscribePattern", "assign", "columns", "includeHeaders"),
    *("includeBatch", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("startingOffsetsByTimestampStrategy", "minPartitions", "maxRecordsPerPartition"),
    *("failOnDataLoss", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries"),
    *("fetchOffset.retryIntervalMs", "replicas", "stopAtHighWatermark", "onCorruptBatch"),
    "checkCrc",
    *FORMAT,
)
BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

BOOTSTRAP: Final = "bootstrap.servers"
# Consumer properties that this reader decides (KafkaSourceProvider.validateGeneralOptions).
OURS_TO_DECIDE: Final = (
    *("key.deserializer", "value.deserializer", "auto.offset.reset", "enable.auto.commit"),
    *("interceptor.classes", "key.serializer", "value.serializer"),
)
_FETCH_DEFAULTS: Final = {
    "isolation.level": "read_uncommitted",
    "fetch.max.bytes": "52428800",
    "max.partition.fetch.bytes": "16777216",
    "fetch.max.wait.ms": "500",
    "fetch.min.bytes": "1",
    "group.id": "",
}
_DELAY: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h)?")
_DELAY_MS: Final = {None: 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


@attrs.frozen(kw_only=True)
class TopicSelection:
    """The partitions to read, by one of three options, or all if none is given."""

    topics: tuple[str, ...] | None = None
    pattern: re.Pattern[str] | None = None
    partitions: tuple[TopicPartition, ...] | None = None

    def selects(self, tp: TopicPartition) -> bool:
        if self.partitions is not None:
            return tp in self.partitions
        return self.selects_topic(tp.topic)

    def selects_topic(self, topic: str) -> bool:
        if self.partitions is not None:
            return any(tp.topic == topic for tp in self.partitions)
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return self.topics is None or topic in self.topics

    @property
    def named_topics(self) -> tuple[str, ...] | None:
        """The topics that have to be there, or None if any will do."""
        if self.partitions is not None:
            return tuple(sorted({tp.topic for tp in self.partitions}))
        return self.topics


@attrs.frozen(kw_only=True)
class Bound:
    """The beginning or the end of a read: a number for each partition, or one for all."""

    option: str
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] | None = None
    are_timestamps: bool = False
    strict: bool = True
    """Whether a timestamp after the last record is an error; otherwise it means the end."""


@attrs.frozen(kw_only=True)
class Fetching:
    """The options of reads from brokers."""

    config: ClientConfig
    read_committed: bool
    max_bytes: int
    max_partition_bytes: int
    max_wait_ms: int
    min_bytes: int
    poll_timeout_ms: int


@attrs.frozen(kw_only=True)
class ReadOptions:
    """All options of a read, typed."""

    selection: TopicSelection
    paths: tuple[str, ...]
    fetching: Fetching | None
    read_committed: bool
    starting: Bound
    ending: Bound
    columns: tuple[str, ...] | None
    include_headers: bool
    include_batch: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    num_retries: int
    retry_interval_ms: int
    all_replicas: bool
    stop_at_high_watermark: bool
    skip_corrupt: bool
    check_crcs: bool
    formats: tuple[FormatOptions, ...]


def parse_read_options(given: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """Parse the options of a read; raise OptionError if one is unknown, missing or invalid.

    With None for `streaming`, which is not known yet, options of batches and streams are allowed.
    """
    options = GivenOptions(lowered(given))
    known: tuple[str, ...] = COMMON
    known += () if streaming else BATCH_ONLY
    known += () if streaming is False else STREAM_ONLY
    check_known(options.values, known)
    paths = parse_paths(options.text("path"), options.text("paths"))
    kafka = options.kafka()
    if bool(paths) == (BOOTSTRAP in kafka):
        raise OptionError("give either `path`, log directories, or `kafka.bootstrap.servers`")
    if paths and (idle := kafka.keys() - {"isolation.level"}):
        raise OptionError(f"option {KAFKA}{min(idle)} is for brokers; `path` has none")
    selection = _selection(options, needed=not paths)
    all_replicas = options.choice("replicas", "one", "all") == "all"
    if all_replicas and not paths:
        raise OptionError("option replicas: only log directories can be read replica by replica")
    if all_replicas and streaming:
        raise OptionError("option replicas: a stream has one position in each partition")
    isolation = kafka.get("isolation.level", _FETCH_DEFAULTS["isolation.level"])
    if isolation not in ("read_committed", "read_uncommitted"):
        raise OptionError(f"option kafka.isolation.level: {isolation!r} is no isolation level")
    return ReadOptions(
        selection=selection,
        paths=paths,
        fetching=None if paths else _fetching(options, kafka),
        read_committed=isolation == "read_committed",
        starting=_starting(options, streaming=streaming is not False),
        ending=_ending(options),
        columns=_columns(options),
        include_headers=options.flag("includeHeaders", default=False),
        include_batch=options.flag("includeBatch", default=False),
        max_offsets_per_trigger=options.number_if_given("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=options.number_if_given("minOffsetsPerTrigger"),
        max_trigger_delay_ms=_delay(options, "maxTriggerDelay", "15m"),
        min_partitions=options.number_if_given("minPartitions"),
        max_records_per_partition=options.number_if_given("maxRecordsPerPartition"),
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        num_retries=options.number("fetchOffset.numRetries", default=3, at_least=0),
        retry_interval_ms=options.number("fetchOffset.retryIntervalMs", default=1000, at_least=0),
        all_replicas=all_replicas,
        # Records that are not committed may be truncated, and a stream takes nothing back.
        stop_at_high_watermark=options.flag("stopAtHighWatermark", default=bool(streaming)),
        skip_corrupt=options.choice("onCorruptBatch", "fail", "skip") == "skip",
        check_crcs=options.flag("checkCrc", default=True),
        formats=parse_formats(options, selection.topics or ()),
    )


def check_known(given: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Raise OptionError for the first unknown option."""
    names = {each.lower(): each for each in known}
    for name in sorted(given):
        if not name.startswith(KAFKA) and name not in names:
            hint = nearest(name, names)
            for lower, proper in names.items():
                hint = hint.replace(f" {lower}?", f" {proper}?")
            raise OptionError(f"unknown option {name}{hint}")


def parse_paths(path: str | None, paths: str | None) -> tuple[str, ...]:
    """Return the log directories, separated by commas; `paths` is Spark's form of `load([...])`."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"', paths) if paths else []
    found += (path or "").split(",")
    return tuple(each.strip().removeprefix("file://") for each in found if each.strip())


def _selection(options: GivenOptions, *, needed: bool) -> TopicSelection:
    names = ("subscribe", "subscribePattern", "assign")
    given = {name: text for name in names if (text := options.text(name)) is not None}
    if len(given) > 1 or (needed and not given):
        raise OptionError(f"give exactly one of {', '.join(names)}; there is {list(given) or None}")
    for name, text in given.items():
        if not text.strip():
            raise OptionError(f"option {name} names nothing")
    if "subscribe" in given:
        topics = (topic.strip() for topic in given["subscribe"].split(","))
        return TopicSelection(topics=tuple(dict.fromkeys(topic for topic in topics if topic)))
    if "subscribePattern" in given:
        try:
            return TopicSelection(pattern=re.compile(given["subscribePattern"].strip()))
        except re.error as error:
            raise OptionError(f"option subscribePattern: no pattern: {error}") from error
    if "assign" in given:
        return TopicSelection(partitions=parse_partitions("assign", given["assign"]))
    return TopicSelection()


def _columns(options: GivenOptions) -> tuple[str, ...] | None:
    text = options.text("columns")
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _starting(options: GivenOptions, *, streaming: bool) -> Bound:
    strict = options.choice("startingOffsetsByTimestampStrategy", "error", "latest") == "error"
    bound = _by_time(options, "startingTimestamp", "startingOffsetsByTimestamp", strict=strict)
    if bound is None:
        bound = _by_offset(
            options, "startingOffsets", default="latest" if streaming else "earliest"
        )
    if not streaming and not bound.are_timestamps:
        _refuse(bound, LATEST, "a batch cannot start at the latest offset")
    return bound


def _ending(options: GivenOptions) -> Bound:
    bound = _by_time(options, "endingTimestamp", "endingOffsetsByTimestamp", strict=False)
    if bound is None:
        bound = _by_offset(options, "endingOffsets", default="latest")
    if not bound.are_timestamps:
        _refuse(bound, EARLIEST, "nothing ends at the earliest offset")
    return bound


def _refuse(bound: Bound, number: int, why: str) -> None:
    if bound.everywhere == number or number in (bound.each or {}).values():
        raise OptionError(f"option {bound.option}: {why}")


def _by_time(options: GivenOptions, everywhere: str, each: str, *, strict: bool) -> Bound | None:
    number = options.number_if_given(everywhere, at_least=0)
    if number is not None:
        return Bound(option=everywhere, everywhere=number, are_timestamps=True, strict=strict)
    if (text := options.text(each)) is not None:
        numbers = parse_numbers(each, text)
        return Bound(option=each, each=numbers, are_timestamps=True, strict=strict)
    return None


def _by_offset(options: GivenOptions, name: str, *, default: str) -> Bound:
    text = (options.text(name) or default).strip()
    if text.lower() in ("earliest", "latest"):
        return Bound(option=name, everywhere=EARLIEST if text.lower() == "earliest" else LATEST)
    numbers = parse_numbers(name, text)
    if wrong := [number for number in numbers.values() if number < EARLIEST]:
        raise OptionError(f"option {name}: {wrong[0]} is no offset")
    return Bound(option=name, each=numbers)


def _delay(options: GivenOptions, name: str, default: str) -> int:
    text = options.text(name) or default
    found = _DELAY.fullmatch(text.strip().lower())
    if found is None:
        raise OptionError(f"option {name}: {text!r} is no time, as 500ms, 30s, 15m or 1h are")
    return int(found[1]) * _DELAY_MS[found[2]]


def _fetching(options: GivenOptions, kafka: Mapping[str, str]) -> Fetching:
    for name in OURS_TO_DECIDE:
        if name in kafka:
            raise OptionError(f"option {KAFKA}{name} cannot be set: the source decides that")
    numbers = {
        **_FETCH_DEFAULTS,
        **{name: kafka[name] for name in _FETCH_DEFAULTS if name in kafka},
    }
    return Fetching(
        config=client_config({name: kafka[name] for name in kafka if name not in _FETCH_DEFAULTS}),
        read_committed=numbers["isolation.level"] == "read_committed",
        max_bytes=_whole(numbers, "fetch.max.bytes"),
        max_partition_bytes=_whole(numbers, "max.partition.fetch.bytes"),
        max_wait_ms=_whole(numbers, "fetch.max.wait.ms"),
        min_bytes=_whole(numbers, "fetch.min.bytes"),
        poll_timeout_ms=options.number("kafkaConsumer.pollTimeoutMs", default=120_000),
    )


def client_config(properties: Mapping[str, str]) -> ClientConfig:
    """Return the configuration of a client; raise OptionError for a key that clients do not have."""
    try:
        return ClientConfig.from_properties({"client.id": "understudy-spark", **properties})
    except ConfigError as error:
        raise OptionError(f"an option {KAFKA}*: {error}") from error


def _whole(numbers: Mapping[str, str], name: str) -> int:
    if not numbers[name].isdecimal():
        raise OptionError(f"option {KAFKA}{name}: {numbers[name]!r} is no whole number")
    return int(numbers[name])
