"""The part of an image that holds SCRAM credentials and ACLs."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TypeAlias, assert_never

import attrs

from replication.errors import MetadataError
from replication.metadata.rules.records import (
    AclRecord,
    RemoveAclRecord,
    RemoveScramCredentialRecord,
    ScramCredentialRecord,
)
from replication.security.rules.acls import Acl, AclIndex
from replication.security.rules.scram import ScramCredential

SecurityRecord: TypeAlias = (
    ScramCredentialRecord | RemoveScramCredentialRecord | AclRecord | RemoveAclRecord
)


@attrs.frozen
class SecurityImage:
    """SCRAM credentials and ACLs; like the whole image, it never changes."""

    credentials: Mapping[tuple[str, str], ScramCredential] = attrs.Factory(dict)
    """The credentials by the name of the user and the mechanism."""
    acls: Mapping[bytes, Acl] = attrs.Factory(dict)

    @cached_property
    def index(self) -> AclIndex:
        return AclIndex(tuple(self.acls.values()))

    def records(self) -> Iterator[SecurityRecord]:
        """Yield the records that turn an empty image into this one."""
        for (name, mechanism), credential in sorted(
            self.credentials.items(), key=lambda each: each[0]
        ):
            yield ScramCredentialRecord(name, mechanism, **attrs.asdict(credential, recurse=False))
        for acl_id, acl in sorted(self.acls.items(), key=lambda each: each[0]):
            yield AclRecord.of(acl_id, acl)


class SecurityDraft:
    """A security image that is still being written; both parts are copied at its beginning."""

    def __init__(self, base: SecurityImage) -> None:
        self._credentials = dict(base.credentials)
        self._acls = dict(base.acls)

    def apply(self, record: SecurityRecord) -> None:
        match record:
            case ScramCredentialRecord():
                values = attrs.asdict(record)
                key = (values.pop("name"), values.pop("mechanism"))
                self._credentials[key] = ScramCredential(**values)
            case RemoveScramCredentialRecord():
                if self._credentials.pop((record.name, record.mechanism), None) is None:
                    raise MetadataError(f"{record.name} has no credential for {record.mechanism}")
            case AclRecord():
                values = attrs.asdict(record)
                acl_id = values.pop("acl_id")
                self._acls[acl_id] = Acl(**values)
            case RemoveAclRecord():
                if self._acls.pop(record.acl_id, None) is None:
                    raise MetadataError(f"no ACL has the id {record.acl_id.hex()}")
            case never:
                assert_never(never)

    def finish(self) -> SecurityImage:
        return SecurityImage(self._credentials, self._acls)
