"""Access control lists, and the decision that follows from them (StandardAuthorizer, KIP-801).

    resource        a literal name, a prefix, or "*" for all of a type
    super user      may do everything
    a matching deny                          -> no
    else a matching allow                    -> yes
    else no ACL is about the resource        -> allow.everyone.if.no.acl.found
    else                                     -> no

Rule 1: an ACL matches a principal by name or as `User:*`, a host by address or as `*`, an operation
by itself or as ALL. An allow of READ, WRITE, DELETE or ALTER implies DESCRIBE, and ALTER_CONFIGS
implies DESCRIBE_CONFIGS. A deny implies only itself.

Rule 2: an operation is allowed on *some* resource of a type (KIP-679) if an allow exists that no
deny covers.
"""

import enum
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TypeVar

from storage.attributes import frozen

Key = TypeVar("Key", bound=Hashable)


class ResourceType(enum.IntEnum):
    """org.apache.kafka.common.resource.ResourceType."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """org.apache.kafka.common.resource.PatternType (KIP-290)."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    """org.apache.kafka.common.acl.AclOperation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


SUPPORTED: Mapping[ResourceType, frozenset[Operation]] = {
    ResourceType.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        }
    ),
}
"""The operations that exist for each type of resource (AclEntry.supportedOperations)."""


def as_bits(operations: Iterable[Operation]) -> int:
    """Return the operations as the bit field of responses (KIP-430)."""
    return sum(1 << each for each in operations)


class Permission(enum.IntEnum):
    """org.apache.kafka.common.acl.AclPermissionType."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


WILDCARD = "*"
ANYBODY = "User:*"
CLUSTER_NAME = "kafka-cluster"
_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


@frozen(kw_only=True)
class Acl:
    """One ACL; the numbers are those of requests and of the metadata log."""

    resource_type: int
    resource_name: str
    pattern_type: int = PatternType.LITERAL
    principal: str
    host: str = WILDCARD
    operation: int
    permission: int

    def matches_name(self, name: str) -> bool:
        """Return whether its pattern matches the name of a resource."""
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, WILDCARD)

    def applies_to(self, principal: str, host: str) -> bool:
        """Return whether it applies to a principal at a host."""
        return self.principal in (principal, ANYBODY) and self.host in (host, WILDCARD)

    def denies(self, operation: Operation) -> bool:
        """Return whether it denies an operation."""
        return self.permission == Permission.DENY and self.operation in (operation, Operation.ALL)

    def allows(self, operation: Operation) -> bool:
        """Return whether it allows an operation, directly or because another one implies it."""
        implied = _IMPLIED_BY.get(operation, frozenset())
        return self.permission == Permission.ALLOW and (
            self.operation in (operation, Operation.ALL) or self.operation in implied
        )


@frozen
class AclIndex:
    """An index of all ACLs of an image by their resources."""

    acls: tuple[Acl, ...] = ()

    @cached_property
    def _by_pattern(self) -> dict[tuple[int, int, str], dict[str, list[Acl]]]:
        """The ACLs by resource type, pattern and principal."""
        found: dict[tuple[int, int, str], dict[str, list[Acl]]] = {}
        for acl in self.acls:
            pattern = (acl.resource_type, acl.pattern_type, acl.resource_name)
            found.setdefault(pattern, {}).setdefault(acl.principal, []).append(acl)
        return found

    @cached_property
    def _prefix_lengths(self) -> dict[int, list[int]]:
        """The lengths of the prefixes in ACLs of each resource type, ascending."""
        lengths: dict[int, set[int]] = {}
        for kind, pattern_type, name in self._by_pattern:
            if pattern_type == PatternType.PREFIXED:
                lengths.setdefault(kind, set()).add(len(name))
        return {kind: sorted(each) for kind, each in lengths.items()}

    def of(self, kind: ResourceType, name: str) -> Iterator[Mapping[str, list[Acl]]]:
        """Yield the ACLs about a resource, by principal, pattern by pattern.

        That takes as long as there are lengths of prefixes, however many ACLs there are: a
        request may name thousands of resources.
        """
        for pattern_type, resource_name in _patterns_about(
            name, self._prefix_lengths.get(kind, ())
        ):
            if (acls := self._by_pattern.get((kind, pattern_type, resource_name))) is not None:
                yield acls


def _patterns_about(name: str, prefix_lengths: Sequence[int]) -> list[tuple[PatternType, str]]:
    """Return every pattern that matches `name`, with prefixes of these lengths (ascending)."""
    patterns = [(PatternType.LITERAL, name), (PatternType.LITERAL, WILDCARD)]
    if name == WILDCARD:
        patterns.pop()
    for length in prefix_lengths:
        if length > len(name):
            break
        patterns.append((PatternType.PREFIXED, name[:length]))
    return patterns


@frozen
class Authorizer:
    """The decision for one request, by the ACLs and this configuration."""

    super_users: frozenset[str] = frozenset()
    allow_if_no_acl: bool = False

    def may(
        self,
        acls: AclIndex,
        operation: Operation,
        kind: ResourceType,
        name: str,
        *,
        principal: str,
        host: str,
    ) -> bool:
        if principal in self.super_users:
            return True
        has_acl = allowed = False
        principals = {principal, ANYBODY}
        for by_principal in acls.of(kind, name):
            has_acl = True
            for acl in chain.from_iterable(by_principal.get(each, ()) for each in principals):
                if acl.applies_to(principal, host):
                    if acl.denies(operation):
                        return False
                    allowed = allowed or acl.allows(operation)
        return allowed or (self.allow_if_no_acl and not has_acl)

    def may_some(
        self, acls: AclIndex, operation: Operation, kind: ResourceType, *, principal: str, host: str
    ) -> bool:
        """Return whether the operation is allowed on some resource of `kind`."""
        if principal in self.super_users:
            return True
        mine = [
            each
            for each in acls.acls
            if each.resource_type == kind and each.applies_to(principal, host)
        ]
        denied = [each for each in mine if each.denies(operation)]
        if self.allow_if_no_acl:
            return not any(_is_everything(each) for each in denied)
        return any(
            each.allows(operation) and not any(_covers(other, each) for other in denied)
            for each in mine
        )


def _is_everything(acl: Acl) -> bool:
    return acl.pattern_type == PatternType.LITERAL and acl.resource_name == WILDCARD


def _covers(denied: Acl, allowed: Acl) -> bool:
    """Return whether `denied` covers every resource of `allowed`."""
    if _is_everything(denied):
        return True
    if denied.pattern_type == PatternType.PREFIXED:
        return not _is_everything(allowed) and allowed.resource_name.startswith(
            denied.resource_name
        )
    return (
        allowed.pattern_type == PatternType.LITERAL
        and allowed.resource_name == denied.resource_name
    )


@frozen(kw_only=True)
class AclFilter:
    """A filter of ACLs; None and ANY match everything (AclBindingFilter)."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Return whether an ACL matches."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type == PatternType.MATCH:
            return acl.matches_name(self.resource_name)
        return acl.resource_name == self.resource_name


_ANYTHING: Mapping[str, int | None] = {
    "resource_type": ResourceType.ANY,
    "resource_name": None,
    "pattern_type": PatternType.ANY,
    "principal": None,
    "host": None,
    "operation": Operation.ANY,
    "permission": Permission.ANY,
}
"""The fields of a filter, each with the value that matches every ACL."""


def matches_of_all(
    acls: Mapping[Key, Acl], filters: Sequence[AclFilter], *, most: int
) -> list[list[Key]] | None:
    """Return the keys of the ACLs that each filter matches; None if they are more than `most`.

    Filters that ask about the same fields share one look at all ACLs, so that 10,000 filters do
    not take 10,000 times as long as one.
    """
    lengths = sorted(
        {
            len(acl.resource_name)
            for acl in acls.values()
            if acl.pattern_type == PatternType.PREFIXED
        }
    )
    wanted: dict[tuple[str, ...], dict[object, list[list[Key]]]] = {}
    results: list[list[Key]] = [[] for _ in filters]
    for each, result in zip(filters, results, strict=True):
        for asked in _asked(each, lengths):
            by_value = wanted.setdefault(tuple(asked), {})
            by_value.setdefault(tuple(asked.values()), []).append(result)
    for fields, by_value in wanted.items():
        for key, acl in acls.items():
            found = by_value.get(tuple([getattr(acl, field) for field in fields]), ())
            for result in found:
                result.append(key)
            most -= len(found)
            if most < 0:
                return None
    return results


def _asked(wanted: AclFilter, prefix_lengths: Sequence[int]) -> Iterator[dict[str, object]]:
    """Yield the fields, and their values, of the ACLs that match; no ACL has two of these."""
    asked: dict[str, object] = {
        name: value
        for name, anything in _ANYTHING.items()
        if (value := getattr(wanted, name)) != anything
    }
    if wanted.pattern_type != PatternType.MATCH:
        yield asked
        return
    del asked["pattern_type"]
    if wanted.resource_name is None:
        yield asked
        return
    for pattern_type, name in _patterns_about(wanted.resource_name, prefix_lengths):
        yield {**asked, "resource_name": name, "pattern_type": pattern_type}


def fault_of(acl: Acl) -> str | None:
    """Return why `acl` cannot be created; None if it can."""
    if acl.resource_type not in set(ResourceType) - {ResourceType.UNKNOWN, ResourceType.ANY}:
        return f"resource type {acl.resource_type} cannot be in an ACL"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"pattern type {acl.pattern_type}: expected literal or prefixed"
    if acl.operation not in set(Operation) - {Operation.UNKNOWN, Operation.ANY}:
        return f"operation {acl.operation} cannot be in an ACL"
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        return f"permission {acl.permission}: expected allow or deny"
    if not acl.resource_name:
        return "the name of a resource is empty"
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"the cluster is called {CLUSTER_NAME}"
    if ":" not in acl.principal:
        return f"principal {acl.principal!r}: expected Type:name, such as User:alice"
    return None
