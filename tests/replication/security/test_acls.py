"""Decisions by ACLs: Kafka's rules as a table, and a naive twin."""

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from replication.security.rules.acls import (
    Acl,
    AclFilter,
    AclIndex,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    fault_of,
    matches_of_all,
)

TOPIC = ResourceType.TOPIC
ALICE, HOST = "User:alice", "10.0.0.1"


def acl(
    name: str = "orders",
    operation: Operation = Operation.READ,
    *,
    deny: bool = False,
    principal: str = ALICE,
    host: str = "*",
    prefixed: bool = False,
    kind: ResourceType = TOPIC,
) -> Acl:
    return Acl(
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal=principal,
        host=host,
        operation=operation,
        permission=Permission.DENY if deny else Permission.ALLOW,
    )


def may(
    *acls: Acl, operation: Operation = Operation.READ, name: str = "orders", open_: bool = False
) -> bool:
    authorizer = Authorizer(frozenset({"User:root"}), open_)
    return authorizer.may(AclIndex(acls), operation, TOPIC, name, principal=ALICE, host=HOST)


@pytest.mark.parametrize(
    ("allowed", "acls"),
    [
        pytest.param(False, (), id="nothing is said"),
        pytest.param(True, (acl(),), id="by name"),
        pytest.param(True, (acl("*"),), id="of all"),
        pytest.param(True, (acl("ord", prefixed=True),), id="by prefix"),
        pytest.param(False, (acl("ord"),), id="of another"),
        pytest.param(False, (acl("*", prefixed=True),), id="a star is no prefix"),
        pytest.param(False, (acl(kind=ResourceType.GROUP),), id="of a group of that name"),
        pytest.param(True, (acl(principal="User:*"),), id="for everybody"),
        pytest.param(False, (acl(principal="User:bob"),), id="for another user"),
        pytest.param(True, (acl(host=HOST),), id="from here"),
        pytest.param(False, (acl(host="10.0.0.2"),), id="from elsewhere"),
        pytest.param(True, (acl(operation=Operation.ALL),), id="everything"),
        pytest.param(False, (acl(operation=Operation.WRITE),), id="something else"),
        pytest.param(False, (acl(), acl("*", deny=True)), id="a deny goes first"),
        pytest.param(False, (acl("o", deny=True, prefixed=True), acl()), id="by prefix too"),
        pytest.param(True, (acl(), acl(deny=True, host="10.9.9.9")), id="a deny for elsewhere"),
        pytest.param(False, (acl(), acl(deny=True, operation=Operation.ALL)), id="deny all"),
    ],
)
def test_what_acls_add_up_to(allowed: bool, acls: tuple[Acl, ...]) -> None:
    assert may(*acls) is allowed
    assert may(*reversed(acls)) is allowed


@pytest.mark.parametrize(
    "operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER]
)
def test_an_allow_implies_describe_and_a_deny_implies_nothing(operation: Operation) -> None:
    assert may(acl(operation=operation), operation=Operation.DESCRIBE)
    hidden = acl(operation=operation, deny=True)
    assert may(acl(operation=Operation.DESCRIBE), hidden, operation=Operation.DESCRIBE)
    assert not may(acl(operation=operation), operation=Operation.DESCRIBE_CONFIGS)


def test_a_resource_without_acls_is_allowed_only_by_configuration() -> None:
    assert may(open_=True)
    assert not may(acl(principal="User:bob"), open_=True)
    assert may(acl("other", principal="User:bob"), open_=True)


def test_a_super_user_may_do_denied_operations() -> None:
    index = AclIndex((acl("*", Operation.ALL, deny=True, principal="User:*"),))
    root = Authorizer(frozenset({"User:root"}))
    assert root.may(index, Operation.READ, TOPIC, "x", principal="User:root", host=HOST)
    assert root.may_some(index, Operation.READ, TOPIC, principal="User:root", host=HOST)


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*"])
ACLS = st.builds(
    acl,
    NAMES,
    st.sampled_from([Operation.READ, Operation.WRITE, Operation.ALL]),
    deny=st.booleans(),
    principal=st.sampled_from([ALICE, "User:*", "User:bob"]),
    host=st.sampled_from(["*", HOST, "h2"]),
    prefixed=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(acls=st.lists(ACLS, max_size=5).map(tuple), open_=st.booleans())
def test_the_index_answers_as_looking_at_every_acl_does(acls: tuple[Acl, ...], open_: bool) -> None:
    authorizer, index = Authorizer(allow_if_no_acl=open_), AclIndex(acls)
    some = authorizer.may_some(index, Operation.READ, TOPIC, principal=ALICE, host=HOST)
    for name in ["a", "ab", "abc", "b", "zzz", "abcd"]:
        spoken = [each for each in acls if each.matches_name(name)]
        mine = [each for each in spoken if each.applies_to(ALICE, HOST)]
        denied = any(each.denies(Operation.READ) for each in mine)
        allowed = any(each.allows(Operation.READ) for each in mine)
        expected = not denied and (allowed or (open_ and not spoken))
        found = authorizer.may(index, Operation.READ, TOPIC, name, principal=ALICE, host=HOST)
        assert found is expected
        assert some or not found


@settings(max_examples=100, deadline=None)
@given(one=ACLS, other=ACLS)
def test_a_filter_with_every_field_matches_only_that_acl(one: Acl, other: Acl) -> None:
    exact = AclFilter(**attrs.asdict(one))
    assert exact.matches(one)
    assert exact.matches(other) == (one == other)
    assert AclFilter().matches(other)
    by_name = AclFilter(resource_name="ab", pattern_type=PatternType.MATCH)
    assert by_name.matches(other) == other.matches_name("ab")


FILTERS = st.builds(
    AclFilter,
    resource_type=st.sampled_from([ResourceType.ANY, TOPIC, ResourceType.GROUP]),
    resource_name=st.none() | NAMES | st.just("abcd"),
    pattern_type=st.sampled_from(PatternType),
    principal=st.sampled_from([None, ALICE, "User:eve"]),
    host=st.sampled_from([None, "*", HOST]),
    operation=st.sampled_from([Operation.ANY, Operation.READ, Operation.ALL]),
    permission=st.sampled_from(Permission),
)


@settings(max_examples=300, deadline=None)
@given(acls=st.lists(ACLS, max_size=6), filters=st.lists(FILTERS, max_size=6))
def test_many_filters_match_what_each_of_them_matches(
    acls: list[Acl], filters: list[AclFilter]
) -> None:
    numbered = dict(enumerate(acls))
    expected = [[key for key, acl in numbered.items() if each.matches(acl)] for each in filters]
    count = sum(map(len, expected))
    assert matches_of_all(numbered, filters, most=count) == expected
    assert count == 0 or matches_of_all(numbered, filters, most=count - 1) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"resource_type": 1}, "resource type 1"),
        ({"pattern_type": 2}, "literal or prefixed"),
        ({"operation": 1}, "operation 1"),
        ({"permission": 1}, "allow or deny"),
        ({"resource_name": ""}, "is empty"),
        ({"principal": "alice"}, "expected Type:name"),
        ({"resource_type": 4}, "the cluster is called kafka-cluster"),
    ],
)
def test_what_is_no_acl_is_refused(changes: dict[str, int], why: str) -> None:
    assert fault_of(acl()) is None
    assert why in (fault_of(attrs.evolve(acl(), **changes)) or "")  # type: ignore[arg-type] # fields of every type
