"""The part of an image that holds SCRAM credentials, ACLs and delegation tokens.

Only a snapshot reads the tokens (KIP-48): nobody logs in here with one, but a cluster of Apache Kafka
may have some, and its log is followed whole.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final, TypeAlias, assert_never, get_args

import attrs

from replication.errors import MetadataError
from replication.security.rules.acls import Acl, AclIndex
from replication.security.rules.scram import SCRAM_NUMBERS, ScramCredential
from replication.wire.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from storage.attributes import frozen

SecurityRecord: TypeAlias = (
    UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
)
SECURITY_RECORDS: Final = get_args(SecurityRecord)


def credential_record(
    name: str, mechanism: str, credential: ScramCredential
) -> UserScramCredentialRecord:
    """Return the record that sets the credential of a user for a mechanism."""
    number = next(each for each, known in SCRAM_NUMBERS.items() if known == mechanism)
    return UserScramCredentialRecord(
        name=name, mechanism=number, **attrs.asdict(credential, recurse=False)
    )


def acl_record(acl_id: bytes, acl: Acl) -> AccessControlEntryRecord:
    """Return the record that adds an ACL."""
    values = attrs.asdict(acl)
    return AccessControlEntryRecord(id_=acl_id, permission_type=values.pop("permission"), **values)


@frozen
class SecurityImage:
    """SCRAM credentials, ACLs and delegation tokens; like the whole image, it never changes."""

    credentials: Mapping[tuple[str, str], ScramCredential] = attrs.Factory(dict)
    """The credentials by the name of the user and the mechanism."""
    acls: Mapping[bytes, Acl] = attrs.Factory(dict)
    delegation_tokens: Mapping[str, DelegationTokenRecord] = attrs.Factory(dict)
    """The tokens by their ids."""

    @cached_property
    def index(self) -> AclIndex:
        return AclIndex(tuple(self.acls.values()))

    def records(self) -> Iterator[SecurityRecord]:
        """Yield the records that turn an empty image into this one."""
        for (name, mechanism), credential in sorted(
            self.credentials.items(), key=lambda each: each[0]
        ):
            yield credential_record(name, mechanism, credential)
        for acl_id, acl in sorted(self.acls.items(), key=lambda each: each[0]):
            yield acl_record(acl_id, acl)
        for _, token in sorted(self.delegation_tokens.items()):
            yield token


class SecurityDraft:
    """A security image that is still being written; its parts are copied at its beginning."""

    def __init__(self, base: SecurityImage) -> None:
        self._credentials = dict(base.credentials)
        self._acls = dict(base.acls)
        self._delegation_tokens = dict(base.delegation_tokens)

    def apply(self, record: SecurityRecord) -> None:
        match record:
            case UserScramCredentialRecord():
                self._credentials[record.name, _mechanism(record)] = ScramCredential(
                    salt=record.salt,
                    stored_key=record.stored_key,
                    server_key=record.server_key,
                    iterations=record.iterations,
                )
            case RemoveUserScramCredentialRecord():
                if self._credentials.pop((record.name, _mechanism(record)), None) is None:
                    raise MetadataError(f"{record.name} has no credential for {_mechanism(record)}")
            case AccessControlEntryRecord():
                self._acls[record.id_] = Acl(
                    resource_type=record.resource_type,
                    resource_name=record.resource_name,
                    pattern_type=record.pattern_type,
                    principal=record.principal,
                    host=record.host,
                    operation=record.operation,
                    permission=record.permission_type,
                )
            case RemoveAccessControlEntryRecord():
                if self._acls.pop(record.id_, None) is None:
                    raise MetadataError(f"no ACL has the id {record.id_.hex()}")
            case DelegationTokenRecord():
                self._delegation_tokens[record.token_id] = record
            case RemoveDelegationTokenRecord():
                self._delegation_tokens.pop(record.token_id, None)
            case never:
                assert_never(never)

    def finish(self) -> SecurityImage:
        return SecurityImage(self._credentials, self._acls, self._delegation_tokens)


def _mechanism(record: UserScramCredentialRecord | RemoveUserScramCredentialRecord) -> str:
    if record.mechanism not in SCRAM_NUMBERS:
        raise MetadataError(f"SCRAM mechanism {record.mechanism} is not known")
    return SCRAM_NUMBERS[record.mechanism]
