"""A voter takes a high watermark only from an answer after which it reads its log on."""

import pytest

from replication.raft.endpoint import fetch_reply
from replication.wire.fetch import (
    DivergingEpoch,
    FetchableTopicResponse,
    FetchResponse,
    FetchSnapshotId,
    PartitionData,
)


def high_watermark_from(data: PartitionData) -> int | None:
    topic = FetchableTopicResponse(partitions=[data])
    return fetch_reply(FetchResponse(responses=[topic]), "CONTROLLER").high_watermark


@pytest.mark.parametrize(
    "elsewhere",
    [
        pytest.param({"diverging_epoch": DivergingEpoch(epoch=23, end_offset=78)}, id="diverges"),
        pytest.param({"snapshot_id": FetchSnapshotId(end_offset=78, epoch=23)}, id="snapshot"),
    ],
)
def test_no_high_watermark_counts_where_the_log_may_not_be_read_on(
    elsewhere: dict[str, DivergingEpoch | FetchSnapshotId],
) -> None:
    """[e15: -73][e22: 74][e24: 75] is cut to 75 by e23, and 74 is another record than the leader's."""
    data = PartitionData(partition_index=0, error_code=0, high_watermark=81)
    assert high_watermark_from(data) == 81
    for name, value in elsewhere.items():
        setattr(data, name, value)
    assert high_watermark_from(data) is None


def test_a_leader_that_does_not_know_its_high_watermark_names_none() -> None:
    data = PartitionData(partition_index=0, error_code=0, high_watermark=-1)
    assert high_watermark_from(data) is None
