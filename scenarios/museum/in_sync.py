"""Exhibits: who is in sync, and what that lets a leader commit."""

from typing import Any

from replication.controller.rules import isr_changes
from replication.leader.rules import isr, leadership
from replication.metadata.rules.image import MetadataImage
from scenarios.museum.exhibit import Exhibit, Replacing
from storage.types import Offset


def who_has_the_high_watermark_may_join(replacing: Replacing) -> None:
    """Let a follower join that has not reached the start of the leader epoch."""

    def may_expand(follower: isr.FollowerState, **known: Offset) -> bool:
        return isr.may_expand(follower, **{**known, "leader_epoch_start": 0})

    replacing.setattr(leadership, "may_expand", may_expand)


def a_fenced_broker_may_join(replacing: Replacing) -> None:
    """Let the leader ask for a fenced broker, and the controller agree."""

    def is_eligible(*, may_lead: bool, **epochs: Any) -> bool:
        del may_lead
        return isr.is_eligible(may_lead=True, **epochs)

    def may_join(image: MetadataImage, broker_id: int, broker_epoch: int) -> bool:
        broker = image.brokers.get(broker_id)
        return broker is not None and broker_epoch in (-1, broker.broker_epoch)

    replacing.setattr(leadership, "is_eligible", is_eligible)
    replacing.setattr(isr_changes, "_may_join", may_join)


def one_replica_is_enough_to_commit(replacing: Replacing) -> None:
    """Let the high watermark advance with fewer replicas in sync than the minimum."""

    def committed_end(*state: Any, min_isr: int, **known: Any) -> Offset | None:
        del min_isr
        return isr.committed_end(*state, min_isr=1, **known)

    replacing.setattr(leadership, "committed_end", committed_end)


EXHIBITS = (
    Exhibit(
        name="KAFKA-7128",
        title="A replica joins the ISR without the last committed records",
        year=2018,
        versions="up to 2.0.0; fixed in 2.0.1 and 2.1.0",
        happened=(
            "A follower joined the ISR once it had reached the leader's high watermark."
            " A new leader learns the true high watermark only from its followers;"
            " until then its own may be behind what its predecessor had acknowledged."
            " A follower could join in that time without the acknowledged records,"
            " and be elected without them."
        ),
        missing=(
            "A follower that joins has reached the start of the present leader epoch too:"
            " all that earlier leaders acknowledged lies below it."
        ),
        fixed="KAFKA-7128 compares the follower's end with the start of the leader epoch.",
        story="a-joining-replica-has-reached-the-present-leader-epoch",
        damage="every replica that is in sync or eligible has all that was committed",
        switch=who_has_the_high_watermark_may_join,
    ),
    Exhibit(
        name="KAFKA-13916",
        also=("KIP-841",),
        title="A fenced broker is added to the ISR",
        year=2022,
        versions="KRaft before 3.3.0",
        happened=(
            "A broker that the controller had fenced, or that was shutting down, could go on"
            " fetching. Its leader saw a follower that had caught up and asked for it to be added,"
            " and the controller agreed."
            " The ISR then had a member that could not be elected,"
            " and that no further fencing took out again."
        ),
        missing="Only a broker that is alive and not shutting down may be in the ISR.",
        fixed=(
            "KIP-841: the controller refuses such an ISR (INELIGIBLE_REPLICA),"
            " and the leader does not ask for it."
        ),
        story="a-fenced-broker-does-not-join",
        damage="ISR and ELR are what KIP-966 says",
        switch=a_fenced_broker_may_join,
    ),
    Exhibit(
        name="KAFKA-15583",
        also=("KIP-966",),
        title="The last replica standing commits alone",
        year=2023,
        versions="before 3.7.0",
        happened=(
            "With fewer replicas in sync than min.insync.replicas, acks=all was refused,"
            " but acks=1 was not, and the high watermark went on with what was left of the ISR."
            " Consumers read records that existed once."
            " If that one replica was lost, the next leader did not have them."
        ),
        missing="The high watermark stands still while the ISR is below min.insync.replicas.",
        fixed=(
            "KAFKA-15583, the first part of KIP-966."
            " The replicas that leave the ISR below the minimum stay eligible (ELR),"
            " because nothing is committed without them."
        ),
        story="alone-nothing-is-committed",
        damage="the high watermark stands still below min.insync.replicas",
        switch=one_replica_is_enough_to_commit,
    ),
)
