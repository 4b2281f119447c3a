"""Members that are too late, by their session or in revoking."""

import pytest

from replication.groups.rules.consumer_group.sessions import Sessions
from tests.replication.groups.consumer_group.members import Desk, image_of, of


@pytest.fixture
def desk() -> Desk:
    return Desk(image_of({"a": 4}))


@pytest.mark.conformance("CG-107", "CG-108")
def test_a_session_ends_some_time_after_the_last_heartbeat(desk: Desk) -> None:
    sessions = Sessions()
    assert sessions.take_late(0) == {}
    desk.join("m", "a")
    sessions.renew(desk.group, "m", 100, session_timeout_ms=45)
    assert sessions.take_late(144) == {}
    assert sessions.next_deadline_ms == 145
    sessions.renew(desk.group, "m", 140, session_timeout_ms=45)
    assert sessions.take_late(184) == {}
    assert sessions.take_late(185) == {"m": "its session has expired"}
    desk.ask("m", -1)
    sessions.follow(desk.group)
    assert sessions.next_deadline_ms is None


@pytest.mark.conformance("CG-110", "CG-112")
def test_a_member_has_its_own_time_to_revoke(desk: Desk) -> None:
    sessions = Sessions()
    desk.join("m", "a")
    desk.join("n", "a")
    desk.beat("m", has=of(a=range(4)))
    sessions.renew(desk.group, "m", 0, session_timeout_ms=10_000)
    assert sessions.next_deadline_ms == 1000
    sessions.renew(desk.group, "m", 500, session_timeout_ms=10_000)
    assert sessions.next_deadline_ms == 1000, "a heartbeat without progress gives no more time"
    assert sessions.take_late(1000) == {"m": "it did not revoke its partitions in time"}
    assert sessions.take_late(1000) == {}, "a member is fenced once"
    taking_over = Sessions()
    taking_over.renew(desk.group, "m", 2000, session_timeout_ms=10_000)
    assert taking_over.next_deadline_ms == 3000
    desk.beat("m", has=desk.member("m").assigned)
    sessions.renew(desk.group, "m", 600, session_timeout_ms=10_000)
    assert sessions.next_deadline_ms == 10_600
