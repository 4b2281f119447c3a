"""Exhibits: the replicas of a broker, their roles and their logs."""

from functools import partial
from typing import Any

from replication.leader.partition import Partition
from replication.replica_manager.roles import AssignedReplica, RoleChanges
from scenarios.museum.exhibit import Exhibit, Replacing
from storage.log.log import Log
from storage.manager.log_directory import LogDirectory
from storage.manager.log_manager import LogManager
from storage.types import Offset, TopicPartition


def strays_are_put_aside_too_late(replacing: Replacing) -> None:
    """Let a replica fail on a log of a deleted topic, which is put aside only after that."""
    honest = RoleChanges._open

    async def open_logs(self: RoleChanges, image: Any, assigned: list[AssignedReplica]) -> None:
        def stray(each: AssignedReplica) -> Log | None:
            log = self.log_manager.get(each.topic_partition) if self._is_missing(each) else None
            return None if log is None or log.topic_id in (None, each.topic_id) else log

        strays = [log for each in assigned if (log := stray(each)) is not None]
        await honest(self, image, [each for each in assigned if stray(each) is None])
        for log in strays:
            await self.offload(partial(self.log_manager.put_aside, log))

    replacing.setattr(RoleChanges, "_open", open_logs)


def an_offset_is_read_while_its_fetcher_runs(replacing: Replacing) -> None:
    """Let a new follower read where its log ends before its former fetcher has stopped."""
    become, offset_of = RoleChanges._become_followers, RoleChanges._initial_offset
    read: dict[int, Offset] = {}

    async def become_followers(
        self: RoleChanges, image: Any, assigned: list[AssignedReplica]
    ) -> list[Partition]:
        for each in assigned:
            await self._open(image, [each])
            partition = self.hosted.find(each.topic_partition)
            if partition is not None:
                read[id(partition.log)] = offset_of(self, partition.log)
        return await become(self, image, assigned)

    def initial_offset(self: RoleChanges, log: Log) -> Offset:
        return read.pop(id(log)) if id(log) in read else offset_of(self, log)

    replacing.setattr(RoleChanges, "_become_followers", become_followers)
    replacing.setattr(RoleChanges, "_initial_offset", initial_offset)


def an_offline_replica_is_made_anew(replacing: Replacing) -> None:
    """Let a broker make a replica anew in another log directory if its own is offline."""
    honest = LogManager._choose_directory

    def is_missing(self: RoleChanges, each: AssignedReplica) -> bool:
        return self.hosted.find(each.topic_partition) is None

    def get(self: LogManager, topic_partition: TopicPartition) -> Log | None:
        logs = (directory.logs.get(topic_partition) for directory in self._live())
        return next((log for log in logs if log is not None), None)

    def choose_directory(
        self: LogManager,
        topic_partition: TopicPartition,
        *,
        is_new: bool,
        directory_id: bytes | None,
    ) -> LogDirectory:
        del is_new
        is_online = directory_id in [each.directory_id for each in self._live()]
        wanted = directory_id if is_online else None
        return honest(self, topic_partition, is_new=True, directory_id=wanted)

    replacing.setattr(RoleChanges, "_is_missing", is_missing)
    replacing.setattr(LogManager, "get", get)
    replacing.setattr(LogManager, "_choose_directory", choose_directory)


EXHIBITS = (
    Exhibit(
        name="KAFKA-16234",
        title="A log directory fails, and its replicas are made anew elsewhere",
        year=2024,
        versions="trunk after KAFKA-16157, February to April 2024; fixed in 3.8.0",
        happened=(
            "A change for topics that are created again (KAFKA-16157) compared the topic id of an"
            " offline replica with the one in the metadata."
            " The id was read from the log, which was offline, so it was never the same, and the"
            " broker took each offline replica for one of an older topic."
            " It made the replica anew, empty, in a log directory that still worked."
        ),
        missing="A replica whose log directory is offline is offline, and is not made a second time.",
        fixed="KAFKA-16234 keeps the topic id with the partition, also while its log is offline.",
        story="a-log-directory-that-is-lost",
        damage="every replica that is in sync or eligible has all that was committed",
        switch=an_offline_replica_is_made_anew,
    ),
    Exhibit(
        name="KAFKA-13266",
        title="A follower begins where its log no longer ends",
        year=2021,
        versions="KRaft before 3.0.0",
        happened=(
            "A broker that learned of a new leader read where to fetch from partition by"
            " partition, and only then took all of them from their fetchers."
            " A fetcher that still ran appended meanwhile."
            " The new fetch began before the end of the log, its records did not fit"
            " (offset mismatch), and the partition was given up as failed."
        ),
        missing="A partition leaves its fetcher before the offset to fetch from is read.",
        fixed="KAFKA-13266 stops the fetchers first.",
        story="records-that-arrive-while-a-role-changes",
        damage="a follower's append continues its log",
        switch=an_offset_is_read_while_its_fetcher_runs,
    ),
    Exhibit(
        name="KAFKA-14616",
        title="A topic that is made again lacks a replica",
        year=2024,
        versions="KRaft before 3.7.0",
        happened=(
            "A topic was deleted and created again while a broker was down."
            " When the broker came back, the log of the old topic lay where the new one's was to"
            " be, and the replica could not be created."
            " Only after that the broker deleted the stray log. It did not try again:"
            " the partition lacked a replica until the broker's next restart."
        ),
        missing="Stray logs go before any replica takes its role.",
        fixed="KAFKA-14616 deletes them before the replica manager starts.",
        story="a-topic-deleted-and-made-again-while-a-replica-is-away",
        damage="not within 60 s: the isr of t-0 is b1,b2,b3",
        switch=strays_are_put_aside_too_late,
    ),
)
