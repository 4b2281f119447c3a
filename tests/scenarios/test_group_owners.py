"""The checks of who owns a partition of a consumer group: each finds the mistake that it is for."""

from collections.abc import Mapping

import attrs
import pytest

from replication.groups.rules.consumer_group.records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupEntry,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    CurrentTopicPartitions,
)
from replication.groups.rules.records import (
    GroupEntry,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitValue,
    OffsetEntry,
    offset_record,
    offset_tombstone,
)
from scenarios.checkers.group_owners import (
    GroupRecord,
    SettlingGroup,
    mistakes_in_groups,
    waiting,
)
from scenarios.story.expected_records import committed_offsets
from scenarios.world.clients.witness import Began, Happening, Lost
from storage.batch.record_batch import read_header
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    encode_batch,
    encode_control_batch,
)
from storage.types import Offset, TopicPartition

T0 = TopicPartition("t", 0)
ID = b"t" * 16
IDS: Mapping[str, bytes] = {"t": ID}


def has(member: str, epoch: int, *numbers: int, pending: tuple[int, ...] = ()) -> GroupRecord:
    def topics(given: tuple[int, ...]) -> list[CurrentTopicPartitions]:
        return [CurrentTopicPartitions(topic_id=ID, partitions=list(given))] if given else []

    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=epoch - 1,
        assigned_partitions=topics(numbers),
        partitions_pending_revocation=topics(pending),
    )
    return ConsumerGroupEntry("g", type(value), member, value)


def gone(member: str) -> GroupRecord:
    return ConsumerGroupEntry("g", ConsumerGroupCurrentMemberAssignmentValue, member, None)


def committed(offset: int) -> GroupRecord:
    return OffsetEntry("g", T0, OffsetCommitValue(offset=offset, metadata="", commit_timestamp=0))


def began(reader: str, epoch: int) -> Happening:
    return Began(
        reader=reader, group="g", read_committed=False, member_id=reader, member_epoch=epoch
    )


def wrongs(records: list[GroupRecord], *happened: Happening) -> list[str]:
    return mistakes_in_groups(records, {T0: happened}, IDS)


def test_a_partition_that_is_released_and_then_given_is_sound() -> None:
    records = [has("a", 1, 0, 1), has("a", 1, 1, pending=(0,)), has("a", 2, 1), has("b", 2, 0)]
    assert wrongs(records, began("a", 1), Lost(reader="a"), began("b", 2)) == []


def test_a_partition_that_is_given_before_it_is_released_is_owned_twice() -> None:
    [wrong] = wrongs([has("a", 1, 1, pending=(0,)), has("b", 2, 0)])
    assert wrong == "owned twice: g gave partition 0 to b in epoch 2, which a had"


def test_a_member_that_was_removed_may_still_read() -> None:
    records = [has("a", 1, 0), gone("a"), has("b", 2, 0)]
    assert wrongs(records, began("a", 1), began("b", 2), Lost(reader="a")) == []


def test_a_member_that_said_too_early_that_it_gave_a_partition_up_is_found() -> None:
    records = [has("a", 1, 0), has("a", 2), has("b", 2, 0)]
    [wrong] = wrongs(records, began("a", 1), began("b", 2), Lost(reader="a"))
    assert wrong.startswith("given up early: t-0: b began in epoch 2, and a had it")


def test_a_classic_member_that_said_too_early_that_it_gave_a_partition_up_is_found() -> None:
    records = [has("a", 1, 0), has("a", 2), has("b", 2, 0)]
    [wrong] = wrongs(records, began("a", -1), began("b", 2), Lost(reader="a"))
    assert wrong.startswith("given up early: t-0: b began in epoch 2, and a had it")


def test_a_group_that_was_downgraded_meanwhile_gives_its_partitions_anew() -> None:
    records = [has("a", 1, 0), gone("a"), has("b", 3, 0)]
    assert wrongs(records, began("a", -1), began("b", 3), Lost(reader="a")) == []


def classic(*members: tuple[str, str | None]) -> GroupRecord:
    listed = [
        GroupMetadataMember(member_id=each, group_instance_id=instance)
        for each, instance in members
    ]
    return GroupEntry("g", GroupMetadataValue(members=listed))


def upgraded(**members: str | None) -> list[GroupRecord]:
    return [
        GroupEntry("g", None),
        *(
            ConsumerGroupEntry("g", type(value), each, value)
            for each, instance in members.items()
            for value in [ConsumerGroupMemberMetadataValue(instance_id=instance)]
        ),
        ConsumerGroupEntry(
            "g", ConsumerGroupMetadataValue, "", ConsumerGroupMetadataValue(epoch=3)
        ),
    ]


def test_a_member_that_an_upgrade_loses_is_found() -> None:
    before = classic(("a", None), ("b", None))
    assert wrongs([before, *upgraded(a=None, b=None, c=None)]) == []
    assert wrongs([before, *upgraded(a=None, c=None)]) == ["left behind: g lost b"]


def test_a_member_that_has_left_or_has_another_id_is_not_lost() -> None:
    records = [classic(("a", None), ("b", "one")), *upgraded(d="one")]
    assert mistakes_in_groups(records, {}, IDS, left={"a"}) == []


T1 = TopicPartition("t", 1)
A, B = frozenset({T0}), frozenset({T1})
SETTLED = SettlingGroup(
    group="g", state="Stable", target={"a": A, "b": B}, has={"a": A, "b": B}, partitions=A | B
)


@pytest.mark.parametrize(
    ("group", "found"),
    [
        (SETTLED, []),
        (attrs.evolve(SETTLED, state="Reconciling"), ["g is Reconciling"]),
        (
            attrs.evolve(SETTLED, has={"a": A, "b": frozenset()}),
            ["b has nothing, and its target is t-1"],
        ),
        (attrs.evolve(SETTLED, has={"a": A}), ["g has the member b, which does not run"]),
        (
            attrs.evolve(SETTLED, target={"b": A | B}, has={"a": A, "b": A | B}),
            ["a runs, and g has no such member"],
        ),
        (
            attrs.evolve(SETTLED, target={"a": A}, has={"a": A}),
            ["g has t-0 in its target, of t-0 t-1"],
        ),
    ],
    ids=["settled", "not stable", "not given", "a ghost", "forgotten", "a partition is left"],
)
def test_what_members_wait_for_is_found(group: SettlingGroup, found: list[str]) -> None:
    assert list(waiting(group)) == found


def test_a_commit_that_goes_backwards_is_found() -> None:
    assert wrongs([committed(3), committed(3), committed(7)]) == []
    assert wrongs([committed(7), committed(3)]) == ["taken back: g has committed 7 of t-0, then 3"]
    assert mistakes_in_groups([committed(7), committed(3)], {}, IDS, may_come_late={"g"}) == []


def test_a_commit_counts_at_once_and_one_of_a_transaction_from_its_marker_on() -> None:
    def written(offset: int | None, *, producer_id: int = -1) -> bytes:
        value = None if offset is None else OffsetCommitValue(offset=offset, commit_timestamp=1)
        made = offset_tombstone("g", T0) if value is None else offset_record("g", T0, value)
        return encode_batch(
            [Record(timestamp=1, key=made.key, value=made.value)],
            producer_id=producer_id,
            transactional=producer_id >= 0,
        )

    def ended(producer_id: int, kind: ControlRecordType) -> bytes:
        marker = EndTransactionMarker(kind, 1)
        return encode_control_batch(marker, timestamp=1, producer_id=producer_id, producer_epoch=0)

    def committed(*batches: bytes) -> Offset | None:
        read = [(read_header(each), memoryview(each)) for each in batches]
        return committed_offsets(read).get(("g", T0))

    log = [written(1), written(2, producer_id=7), written(3, producer_id=8)]
    assert committed(*log) == 1
    assert committed(*log, ended(7, ControlRecordType.COMMIT)) == 2
    assert committed(*log, ended(8, ControlRecordType.ABORT)) == 1
    assert committed(*log, written(None)) is None
