"""The controller's decisions about ACLs."""

from itertools import count

from replication.controller.rules.acls import create_acls, delete_acls
from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import MAX_RECORDS
from tests.replication.controller.images import after
from tests.replication.server import hostile


def with_acls(number: int) -> MetadataImage:
    ids = (each.to_bytes(16, "big") for each in count())
    image = MetadataImage()
    decision = create_acls(image, hostile.create_acls(number), lambda: next(ids))
    return after(image, decision.records)


def test_an_acl_that_two_filters_match_is_deleted_once_and_answered_twice() -> None:
    decision = delete_acls(with_acls(3), hostile.delete_acls([None, "topic-1"]))
    assert [len(each.matching_acls) for each in decision.answer.filter_results] == [3, 1]
    assert len(decision.records) == 3


def test_filters_with_too_many_matches_together_delete_nothing() -> None:
    image = with_acls(100)
    most = MAX_RECORDS // 100
    assert len(delete_acls(image, hostile.delete_acls([None] * most)).records) == 100
    refused = delete_acls(image, hostile.delete_acls([None] * (most + 1)))
    assert refused.records == ()
    codes = {each.error_code for each in refused.answer.filter_results}
    assert codes == {ErrorCode.POLICY_VIOLATION}
