"""`understudy group`: against brokers on virtual time, and as a command."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import click
import pytest
import trio
from click.testing import CliRunner

from replication.cli import group as understudy, main
from replication.cli.group_offsets import (
    ResetTarget,
    To,
    check_offsets,
    duration_ms,
    from_csv,
    milliseconds,
    new_offset,
    planned,
    set_offsets,
    to_csv,
)
from replication.cli.groups import (
    About,
    GroupPosition,
    GroupPositions,
    describe,
    listed,
    log_ends,
    remark,
    show,
)
from replication.client.admin import Admin
from replication.client.admin.values import BrokerDescription, GroupDescription, GroupMember
from replication.errors import ErrorCode, KafkaError
from replication.testing import ThreadedCluster
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.cli.commands import Command
from tests.replication.broker.stage import played
from tests.replication.client.consumer.test_consumer_protocol import served
from tests.replication.client.consumer.test_group_member import ALL
from tests.replication.client.scene import T0, Scene, scene

T1 = TopicPartition("t", 1)


def with_a_group(story: Callable[[Scene, Admin], Awaitable[None]]) -> Callable[[], None]:
    """Make `story` a test on virtual time.

    There are ten records, six and four; group `g` has read the first four, and has no members.
    """

    async def run(world: World) -> None:
        async with (
            scene(world, brokers=3, replicas=((1, 2, 3), (2, 3, 1))) as stage,
            Admin(stage.bootstrap_servers, seams=world.node("admin")) as admin,
        ):
            await stage.produce(*map(str, range(6)))
            await stage.produce(*map(str, range(4)), partition=1)
            async with stage.consumer(group_id="g") as consumer:
                consumer.assign([T0])
                await consumer.getmany(timeout_ms=5000, max_records=4)
            await story(stage, admin)

    return played(run)


def table(described: GroupPositions) -> list[tuple[object, ...]]:
    return [
        (each.topic, each.partition, each.current_offset, each.log_end_offset, each.lag)
        for each in described.positions
    ]


@with_a_group
async def test_a_group_without_members_has_positions(stage: Scene, admin: Admin) -> None:
    described = await describe(admin, "g")
    assert (described.group.state, described.group.members) == ("Empty", ())
    assert described.group.coordinator is not None
    assert described.group.coordinator.id in {1, 2, 3}
    assert described.positions[0].leader_epoch == 0
    assert table(described) == [("t", 0, 4, 6, 2)]
    assert described.positions[0].reader is None


@with_a_group
async def test_positions_include_members_with_and_without_partitions(
    stage: Scene, admin: Admin
) -> None:
    async with trio.open_nursery() as nursery:

        async def member(name: str) -> None:
            async with stage.consumer("t", group_id="g", client_id=name) as consumer:
                async for _ in consumer:
                    pass

        for name in ("one", "two", "three"):
            nursery.start_soon(member, name)
        described = await describe(admin, "g")
        while len(described.positions) < 3 or described.group.state != "Stable":
            await stage.world.clock("admin").sleep(0.5)
            described = await describe(admin, "g")
        readers = [each.reader.client_id if each.reader else "" for each in described.positions]
        assert sorted(readers) == ["one", "three", "two"]
        assert [each.partition for each in described.positions] == [0, 1, None]
        with pytest.raises(KafkaError, match="while group g has no members; it is Stable"):
            await planned(admin, "g", None, ResetTarget(To.LATEST))
        nursery.cancel_scope.cancel()


@with_a_group
async def test_an_unknown_group_is_an_error(stage: Scene, admin: Admin) -> None:
    with pytest.raises(KafkaError) as caught:
        await describe(admin, "nobody")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


@with_a_group
async def test_a_deleted_topic_has_no_log_end(stage: Scene, admin: Admin) -> None:
    assert await log_ends(admin, [TopicPartition("gone", 0), T0]) == {T0: 6}


@with_a_group
async def test_offsets_are_planned_and_then_put(stage: Scene, admin: Admin) -> None:
    plan = await planned(admin, "g", None, ResetTarget(To.SHIFT, -3))
    assert plan == {T0: 1}
    assert table(await describe(admin, "g")) == [("t", 0, 4, 6, 2)]
    await set_offsets(admin, "g", plan)
    assert table(await describe(admin, "g")) == [("t", 0, 1, 6, 5)]
    assert await planned(admin, "g", ["t"], ResetTarget(To.LATEST)) == {T0: 6, T1: 4}
    assert await planned(admin, "g", ["t:1"], ResetTarget(To.OFFSET, 3)) == {T1: 3}
    assert await planned(admin, "new", ["t:0,1"], ResetTarget(To.EARLIEST)) == {T0: 0, T1: 0}
    long_ago, never = ResetTarget(To.DATETIME, 1), ResetTarget(To.DATETIME, 2**50)
    assert await planned(admin, "g", ["t"], long_ago) == {T0: 0, T1: 0}
    assert await planned(admin, "g", ["t"], never) == {T0: 6, T1: 4}


@pytest.mark.parametrize(
    ("target", "current", "expected"),
    [
        (ResetTarget(To.EARLIEST), 7, 5),
        (ResetTarget(To.LATEST), 7, 9),
        (ResetTarget(To.OFFSET, 6), None, 6),
        (ResetTarget(To.OFFSET, 100), 7, 9),
        (ResetTarget(To.OFFSET, 0), 7, 5),
        (ResetTarget(To.SHIFT, -1), 7, 6),
        (ResetTarget(To.SHIFT, -100), 7, 5),
        (ResetTarget(To.SHIFT, 100), 7, 9),
        (ResetTarget(To.DATETIME, 1), 7, 8),
        (ResetTarget(To.CURRENT), 7, 7),
        (ResetTarget(To.CURRENT), None, 9),
        (ResetTarget(To.CURRENT), 2, 5),
    ],
)
def test_the_new_offset_of_a_group(target: ResetTarget, current: int | None, expected: int) -> None:
    assert new_offset(T0, target, begin=5, end=9, current=current, at_time=8) == expected


def test_a_partition_without_a_committed_offset_cannot_be_shifted() -> None:
    with pytest.raises(KafkaError, match="t-0 has no committed offset to shift"):
        new_offset(T0, ResetTarget(To.SHIFT, 1), begin=0, end=9, current=None, at_time=None)


@with_a_group
async def test_offsets_that_were_not_committed_after_all_are_an_error(
    stage: Scene, admin: Admin
) -> None:
    await set_offsets(admin, "g", {T0: 3})
    await check_offsets(admin, "g", {T0: 3})
    with pytest.raises(KafkaError, match="set to 4 of t-0, but 3 is committed"):
        await check_offsets(admin, "g", {T0: 4})
    with pytest.raises(KafkaError, match="set to 1 of t-7, but nothing is committed"):
        await check_offsets(admin, "g", {TopicPartition("t", 7): 1})


def test_a_time_without_a_zone_is_utc() -> None:
    assert milliseconds("1970-01-01T00:00:01.500") == 1500
    assert milliseconds("1970-01-01T01:00:01.500+01:00") == 1500


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["describe"], "give either GROUP or --all-groups"),
        (["delete", "g", "--all-groups"], "give either GROUP or --all-groups"),
        (["describe", "g", "--state", "--members"], "give one of --offsets, --members and --state"),
        (["reset-offsets", "g", "--all-topics", "--by-duration", "1h"], "expected one like P2DT3H"),
        (
            ["reset-offsets", "g", "--all-topics", "--from-file", __file__],
            "--from-file excludes --topic",
        ),
        (["list", "--type", "share"], "share: expected classic or consumer"),
        (["delete-offsets", "g"], "Missing option '--topic'"),
        (["delete-offsets", "g", "--topic", "t:x"], "partitions are numbers"),
        (["reset-offsets", "g", "--to-latest"], "give either --topic or --all-topics"),
        (["reset-offsets", "g", "--all-topics"], "give one of --to-earliest"),
        (["reset-offsets", "g", "--all-topics", "--to-latest", "--to-offset", "0"], "give one of"),
        (["reset-offsets", "g", "--topic", "t:x", "--to-latest"], "partitions are numbers"),
        (["reset-offsets", "g", "--all-topics", "--to-datetime", "soon"], "--to-datetime soon"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments: list[str], reason: str) -> None:
    done = CliRunner().invoke(understudy, ["group", *arguments])
    assert done.exit_code == 2
    assert reason in done.output


def test_a_duration_is_one_of_iso_8601() -> None:
    assert duration_ms("PT1.5S") == 1500
    assert duration_ms("P1DT2H3M4S") == 93_784_000
    assert duration_ms("-pt1m") == -60_000
    for none in ("", "P", "PT", "1h", "P1Y"):
        with pytest.raises(click.UsageError):
            duration_ms(none)


def test_exported_offsets_can_be_read_back() -> None:
    one = [("g", "a,b", 0, 5), ("g", "c", 1, 6)]
    assert to_csv(one, groups=1) == ['"a,b",0,5', "c,1,6"]
    offsets = {TopicPartition("a,b", 0): 5, TopicPartition("c", 1): 6}
    assert from_csv("\n".join(to_csv(one, groups=1)), ["g"]) == {"g": offsets}
    two = [*one, ("h", "c", 0, 7)]
    answer = from_csv("\n".join(to_csv(two, groups=2)), ["g", "h"])
    assert answer == {"g": offsets, "h": {TopicPartition("c", 0): 7}}
    with pytest.raises(click.UsageError, match="line 2: c,x,6 is not an offset"):
        from_csv("c,0,1\nc,x,6\n", ["g"])
    with pytest.raises(click.UsageError, match="it has no offset of h"):
        from_csv("g,c,0,1\n", ["g", "h"])


def shown(
    described: GroupPositions, about: About, capsys: pytest.CaptureFixture[str], *, verbose: bool
) -> list[list[str]]:
    show(described, about, verbose=verbose)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_group_is_described_in_kafkas_columns(capsys: pytest.CaptureFixture[str]) -> None:
    read = (TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("u", 2))
    member = GroupMember(
        member_id="m-1", group_instance_id="i", client_id="c", host="/1", partitions=read
    )
    group = GroupDescription(
        group_id="g", state="CompletingRebalance", protocol_type="consumer", protocol="range",
        members=(member,), coordinator=BrokerDescription(id=2, host="h", port=9),
    )  # fmt: skip
    at = GroupPosition(
        group="g", topic="t", partition=0, leader_epoch=3, current_offset=4, log_end_offset=6,
        reader=member,
    )  # fmt: skip
    described = GroupPositions(group, (at,))
    assert remark(group) == "Warning: Consumer group 'g' is rebalancing."
    assert shown(described, About.OFFSETS, capsys, verbose=True) == [
        [
            "GROUP",
            "TOPIC",
            "PARTITION",
            "LEADER-EPOCH",
            "CURRENT-OFFSET",
            "LOG-END-OFFSET",
            "LAG",
            "CONSUMER-ID",
            "HOST",
            "CLIENT-ID",
        ],
        ["g", "t", "0", "3", "4", "6", "2", "m-1", "/1", "c"],
    ]
    assert shown(described, About.MEMBERS, capsys, verbose=False) == [
        ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        ["g", "m-1", "i", "/1", "c", "3"],
    ]
    *_, row = shown(described, About.MEMBERS, capsys, verbose=True)
    assert row[-4:] == ["-", "t:0,1;u:2", "-", "-"]
    assert shown(described, About.STATE, capsys, verbose=True) == [
        [
            "GROUP",
            "COORDINATOR",
            "(ID)",
            "ASSIGNMENT-STRATEGY",
            "STATE",
            "GROUP-EPOCH",
            "TARGET-ASSIGNMENT-EPOCH",
            "#MEMBERS",
            "TYPE",
        ],
        ["g", "h:9", "(2)", "range", "CompletingRebalance", "-", "-", "1", "Classic"],
    ]
    assert listed([]) is None


def test_a_consumer_group_is_described_with_its_epochs_and_targets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    new = GroupMember(
        member_id="new", group_instance_id=None, client_id="c", host="/1", member_epoch=5,
        partitions=(T0, T1), target_partitions=(T0,), upgraded=True,
    )  # fmt: skip
    classic = attrs.evolve(
        new, member_id="old", upgraded=False, partitions=(), target_partitions=(T1,)
    )
    group = GroupDescription(
        group_id="g", state="Reconciling", protocol_type="consumer", protocol="uniform",
        members=(new,), type="consumer", group_epoch=6, target_assignment_epoch=6,
    )  # fmt: skip
    described = GroupPositions(group, ())
    assert remark(group) == "Warning: Consumer group 'g' is rebalancing."
    columns, row = shown(described, About.MEMBERS, capsys, verbose=True)
    assert columns[-4:] == [
        "CURRENT-EPOCH",
        "CURRENT-ASSIGNMENT",
        "TARGET-EPOCH",
        "TARGET-ASSIGNMENT",
    ]
    assert row[-5:] == ["2", "5", "t:0,1", "6", "t:0"]
    _, row = shown(described, About.STATE, capsys, verbose=True)
    assert row[-6:] == ["uniform", "Reconciling", "6", "6", "1", "Consumer"]
    mixed = attrs.evolve(group, members=(new, classic))
    columns, *rows = shown(GroupPositions(mixed, ()), About.MEMBERS, capsys, verbose=True)
    assert columns[-1] == "UPGRADED"
    assert [row[-2:] for row in rows] == [["t:0", "true"], ["t:1", "false"]]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_either_protocol_is_described_and_emptied(protocol: str) -> None:
    async def run(world: World) -> None:
        async with (
            served(world) as stage,
            Admin(stage.bootstrap_servers, seams=world.node("admin")) as admin,
        ):
            consumer = stage.consumer("t", group_id="g", group_protocol=protocol)
            async with consumer:
                while consumer.assignment() != ALL:
                    await consumer.poll(timeout_ms=200)
                await consumer.commit({T0: 0})
                (listed,) = await admin.list_groups(types=[protocol])
                assert (listed.type, listed.protocol_type, listed.state) == (
                    protocol, "consumer", "Stable",
                )  # fmt: skip
                assert await admin.list_groups(types={"classic", "consumer"} - {protocol}) == []
                described = await describe(admin, "g")
                group, (member,) = described.group, described.group.members
                assert set(member.partitions) == ALL
                assert {each.reader for each in described.positions} == {member}
                assert (group.type, group.state) == (protocol, "Stable")
                with pytest.raises(KafkaError, match="while group g has no members; it is Stable"):
                    await planned(admin, "g", None, ResetTarget(To.LATEST))
                if protocol == "consumer":
                    assert set(member.target_partitions or ()) == ALL
                    assert member.upgraded
                    assert member.member_epoch == group.group_epoch == group.target_assignment_epoch
                with pytest.raises(KafkaError) as refused:
                    await admin.delete_group_offsets("g", [T0])
                assert refused.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            assert (await describe(admin, "g")).group.state == "Empty"
            await set_offsets(admin, "g", await planned(admin, "g", None, ResetTarget(To.LATEST)))
            await admin.delete_group_offsets("g", [T0])
            assert T0 not in await admin.list_group_offsets("g")

    played(run)()


@played
async def test_a_group_of_brokers_without_the_new_protocol_is_described(world: World) -> None:
    async with (
        served(world, group_coordinator_rebalance_protocols="classic") as stage,
        Admin(stage.bootstrap_servers, seams=world.node("admin")) as admin,
    ):
        await set_offsets(admin, "g", {T0: 0})
        assert (await describe(admin, "g")).group.type == "classic"


def test_groups_are_described_reset_and_restored(
    understudy: Command, brokers: ThreadedCluster, tmp_path: Path
) -> None:
    brokers.create_topic("put")
    understudy("produce", "put", stdin=b"0\n1\n2\n")
    for group, offset in (("ga", "1"), ("gb", "2")):
        flags = ["--topic", "put", "--to-offset", offset, "--execute"]
        understudy("group", "reset-offsets", group, *flags)
    answer = understudy.json("group", "describe", "--all-groups")
    assert {each["group"]: each["offsets"][0]["current_offset"] for each in answer} == {
        "ga": 1,
        "gb": 2,
    }
    assert answer[0].keys() == {
        "group", "type", "state", "group_epoch", "target_assignment_epoch", "coordinator",
        "assignment_strategy", "members", "offsets",
    }  # fmt: skip
    assert answer[0]["coordinator"]["id"] in {1, 2}
    _, row = understudy.lines("group", "describe", "--group", "ga", "--state")
    assert row.split()[-3:] == ["-", "Empty", "0"]
    whom = ["group", "reset-offsets", "--all-groups"]
    exported = understudy(*whom, "--all-topics", "--to-current", "--export").stdout
    assert exported == "ga,put,0,1\ngb,put,0,2\n"
    (tmp_path / "offsets.csv").write_text(exported)
    # All that is in the topic was written within the hour.
    moved = understudy.json(*whom, "--all-topics", "--by-duration", "PT1H", "--execute")
    assert [each["new_offset"] for each in moved] == [0, 0]
    back = ["--from-file", str(tmp_path / "offsets.csv"), "--execute"]
    assert [each["new_offset"] for each in understudy.json(*whom, *back)] == [1, 2]
    assert [
        each["offsets"][0]["current_offset"]
        for each in understudy.json("group", "describe", "ga", "gb")
    ] == [1, 2]
    assert understudy.lines("group", "delete", "--all-groups")[1:] == [
        "ga     Empty",
        "gb     Empty",
    ]


def test_a_group_is_listed_described_and_deleted(
    understudy: Command, brokers: ThreadedCluster
) -> None:
    brokers.create_topic("listed")
    understudy("produce", "listed", stdin=b"0\n1\n2\n")
    reset = ["group", "reset-offsets", "gl"]
    understudy(*reset, "--topic", "listed:0", "--to-offset", "2", "--execute")
    listed = ["gl", "Classic", "-", "Empty"]
    assert listed in [line.split() for line in understudy.lines("group", "list", "--type=Classic")]
    assert "gl" not in understudy("group", "list", "--type", "consumer").stdout
    _, row = understudy.lines("group", "describe", "gl")
    assert row.split() == ["gl", "listed", "0", "2", "3", "1", "-", "-", "-"]
    shown = understudy.json(*reset, "--all-topics", "--to-earliest")
    assert shown == [{"group": "gl", "topic": "listed", "partition": 0, "new_offset": 0}]
    (described,) = understudy.json("group", "describe", "gl")
    assert (described["state"], described["offsets"][0]["lag"]) == ("Empty", 1), "it only was shown"
    forget = ["group", "delete-offsets", "gl", "--topic", "listed"]
    _, row = understudy.lines(*forget)
    assert row.split() == ["gl", "listed", "0", "2"]
    understudy(*forget, "--execute")
    (row,) = understudy.json(*forget)
    assert (row["current_offset"], row["deleted"]) == (None, False)
    assert understudy("group", "delete", "gl").stdout.split() == ["GROUP", "STATE", "gl", "Empty"]
    assert "'gl'" in understudy("group", "delete", "gl", "--execute").stdout
    assert "gl" not in [each["group_id"] for each in understudy.json("group", "list")]


def test_a_failure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["group", "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "1"])
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("understudy: 127.0.0.1:1: REQUEST_TIMED_OUT")
