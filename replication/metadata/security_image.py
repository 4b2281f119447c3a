"""The part of an image that says who may come in, and do what."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TypeAlias, assert_never

import attrs

from replication.errors import MetadataError
from replication.metadata.records import (
    AclRecord,
    RemoveAclRecord,
    RemoveScramCredentialRecord,
    ScramCredentialRecord,
)
from replication.security.acls import Acl, AclIndex
from replication.security.scram import ScramCredential

SecurityRecord: TypeAlias = (
    ScramCredentialRecord | RemoveScramCredentialRecord | AclRecord | RemoveAclRecord
)


@attrs.frozen
class SecurityImage:
    """As an image: it never changes, and what a record does not touch is shared."""

    credentials: Mapping[tuple[str, str], ScramCredential] = attrs.Factory(dict)
    """By name and mechanism."""
    acls: Mapping[bytes, Acl] = attrs.Factory(dict)

    @cached_property
    def index(self) -> AclIndex:
        return AclIndex(tuple(self.acls.values()))

    def after(self, record: SecurityRecord) -> "SecurityImage":
        match record:
            case ScramCredentialRecord():
                values = attrs.asdict(record)
                key = (values.pop("name"), values.pop("mechanism"))
                added = {**self.credentials, key: ScramCredential(**values)}
                return attrs.evolve(self, credentials=added)
            case RemoveScramCredentialRecord():
                key = (record.name, record.mechanism)
                if key not in self.credentials:
                    raise MetadataError(f"{record.name} has no credential for {record.mechanism}")
                left = {each: value for each, value in self.credentials.items() if each != key}
                return attrs.evolve(self, credentials=left)
            case AclRecord():
                values = attrs.asdict(record)
                added_acls = {**self.acls, values.pop("acl_id"): Acl(**values)}
                return attrs.evolve(self, acls=added_acls)
            case RemoveAclRecord():
                if record.acl_id not in self.acls:
                    raise MetadataError(f"no ACL has the id {record.acl_id.hex()}")
                others = {each: acl for each, acl in self.acls.items() if each != record.acl_id}
                return attrs.evolve(self, acls=others)
            case never:
                assert_never(never)

    def records(self) -> Iterator[SecurityRecord]:
        """Applied to an empty one, these make this one."""
        for (name, mechanism), credential in sorted(
            self.credentials.items(), key=lambda each: each[0]
        ):
            yield ScramCredentialRecord(name, mechanism, **attrs.asdict(credential, recurse=False))
        for acl_id, acl in sorted(self.acls.items(), key=lambda each: each[0]):
            yield AclRecord.of(acl_id, acl)
