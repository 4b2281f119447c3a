"""Exhibits: what a fetch says, and which responses a follower uses."""

from collections.abc import Mapping
from typing import Any

import attrs

from replication.errors import ErrorCode
from replication.follower import log_truncation
from replication.follower.fetcher import FollowUp, ReplicaFetcher
from replication.follower.leader_endpoint import EpochEnd, EpochWanted
from replication.follower.partitions import FollowedPartitions
from replication.follower.rules.fetch_session_handler import WantedPartition
from replication.leader.rules.fetch_data import Wanted
from replication.leader.rules.fetch_session.session import FetchSession
from replication.steps import Steps
from replication.wire.fetch import PartitionData
from scenarios.museum.exhibit import Exhibit, Replacing
from storage.types import NO_LEADER_EPOCH, OffsetAndEpoch, TopicPartition


def a_session_forgets_leader_epochs(replacing: Replacing) -> None:
    """Let a fetch session keep no leader epochs, so that only its first fetch is checked."""
    honest = FetchSession.wanted

    def wanted(self: FetchSession, topic_names: Any) -> Steps[Wanted]:
        pairs = yield from honest(self, topic_names)
        return [
            (partition, info._replace(current_leader_epoch=NO_LEADER_EPOCH))
            for partition, info in pairs
        ]

    replacing.setattr(FetchSession, "wanted", wanted)


def an_empty_response_has_the_last_epoch(replacing: Replacing) -> None:
    """Let a follower take the epoch of its last record from each response, records or not."""
    honest = ReplicaFetcher._advance

    def advance(
        self: ReplicaFetcher, tp: TopicPartition, state: Any, appended: Any, **how: Any
    ) -> None:
        last = appended.last_leader_epoch if appended.valid_bytes > 0 else None
        honest(self, tp, attrs.evolve(state, last_fetched_epoch=last), appended, **how)

    replacing.setattr(ReplicaFetcher, "_advance", advance)


def a_refusal_counts_in_any_leader_epoch(replacing: Replacing) -> None:
    """Let a follower use an answer of OffsetForLeaderEpoch, whatever epoch it follows in by now."""

    async def truncate_to_epoch_end_offsets(
        partitions: FollowedPartitions, wanted: Mapping[TopicPartition, EpochWanted]
    ) -> None:
        answers = await partitions.leader.fetch_epoch_end_offsets(wanted)
        ends: dict[TopicPartition, OffsetAndEpoch] = {}
        for tp in wanted:
            state = partitions.states.get(tp)
            if state is None:
                continue
            answer = answers.get(tp, EpochEnd(ErrorCode.UNKNOWN_SERVER_ERROR))
            if answer.error is ErrorCode.NONE:
                ends[tp] = answer.end
            elif answer.error is ErrorCode.FENCED_LEADER_EPOCH:
                partitions.on_fenced(tp, state.current_leader_epoch)
            else:
                partitions.delay([tp])
        log_truncation.truncate_to_epoch_ends(partitions, ends, cause="leader epoch")

    replacing.setattr(
        log_truncation, "_truncate_to_epoch_end_offsets", truncate_to_epoch_end_offsets
    )


def a_response_counts_in_any_leader_epoch(replacing: Replacing) -> None:
    """Let a follower compare the offset of a response with its own, and not the leader epoch."""
    honest = ReplicaFetcher._process_responses

    def process(
        self: ReplicaFetcher,
        requested: Mapping[TopicPartition, WantedPartition],
        responses: Mapping[TopicPartition, PartitionData],
    ) -> FollowUp:
        as_now = dict(requested)
        for tp, asked in requested.items():
            state, data = self.partitions.states.get(tp), responses.get(tp)
            # An error was compared with the epoch of the request already (KAFKA-9654).
            if state is not None and data is not None and data.error_code == ErrorCode.NONE:
                as_now[tp] = asked._replace(current_leader_epoch=state.current_leader_epoch)
        return honest(self, as_now, responses)

    replacing.setattr(ReplicaFetcher, "_process_responses", process)


EXHIBITS = (
    Exhibit(
        name="KAFKA-7786",
        title="A follower that never fetches again",
        year=2019,
        versions="2.0 and 2.1.0; fixed in 2.1.1 and 2.2.0",
        happened=(
            "A follower asked its leader where an epoch ended."
            " Two elections later the same broker led again, and refused the request because it"
            " named an earlier leader epoch (FENCED_LEADER_EPOCH)."
            " The follower followed it in the new epoch by then, and gave the partition up all the"
            " same. It fetched nothing until the next change of the leader."
        ),
        missing="An answer means something only in the leader epoch of its request.",
        fixed="KAFKA-7786 ignores an answer if the leader epoch has changed meanwhile.",
        story="a-refusal-of-an-earlier-leader-epoch",
        damage="not within 60 s: the isr of t-0 is b1,b2,b3",
        switch=a_refusal_counts_in_any_leader_epoch,
    ),
    Exhibit(
        name="KAFKA-9338",
        title="A fetch session forgets the leader epoch",
        year=2020,
        versions="2.1.0 to 2.4; fixed in 2.5.0",
        happened=(
            "A fetch names the leader epoch of the follower, so that a leader refuses one that has"
            " missed an election (KIP-320)."
            " The session in which followers fetch kept offset and size of each partition,"
            " and not that epoch: only the first fetch of a session was checked."
            " The offset of a follower whose log came from another leader epoch counted,"
            " and records that it did not have were committed."
        ),
        missing="Each fetch is checked against the leader epoch, also within a session.",
        fixed="KAFKA-9338 keeps the leader epoch in the session.",
        story="a-fetch-session-of-an-earlier-leader-epoch",
        damage="every replica that is in sync or eligible has all that was committed",
        switch=a_session_forgets_leader_epochs,
    ),
    Exhibit(
        name="KAFKA-15510",
        title="An empty response erases the epoch of the last record",
        year=2023,
        versions="trunk before 3.7.0; fixed in 3.7.0",
        happened=(
            "A follower names the epoch of its last record, so that the leader finds a divergence."
            " After a refactoring, a response without records set that epoch to none,"
            " and the next fetches named no epoch: the leader could compare nothing."
            " Nobody is known to have lost records by it. A new leader epoch sets the value anew,"
            " so the story shows the fetches, not a loss."
        ),
        missing="A response without records changes nothing about the last record of the log.",
        fixed="KAFKA-15510 keeps the epoch of the fetch state if a response has no records.",
        story="an-empty-answer-keeps-the-last-epoch",
        damage="+b1 fetches from 2 on in epoch 1, after no record",
        switch=an_empty_response_has_the_last_epoch,
    ),
    Exhibit(
        name="KAFKA-18991",
        title="A divergence of an earlier leader epoch cuts committed records",
        year=2025,
        versions="2.7 up to the fix",
        happened=(
            "A follower used a fetch response if its offset was still that of the request,"
            " whatever the leader epoch."
            " A leader that lacked records answered with a divergence; the answer was slow."
            " Meanwhile another leader committed those records, and the first one led again with"
            " a copy of them. The old answer arrived, and the follower cut what was committed."
        ),
        missing="A response counts in the leader epoch of its request only.",
        fixed="KAFKA-18991 compares the leader epochs of request and fetch state as well.",
        story="a-divergence-of-an-earlier-leader-epoch",
        damage="every replica that is in sync or eligible has all that was committed",
        switch=a_response_counts_in_any_leader_epoch,
    ),
)
