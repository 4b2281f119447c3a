"""The part of an image that says who may come in, and do what."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias, assert_never

import attrs

from replication.errors import MetadataError
from replication.metadata.records import RemoveScramCredentialRecord, ScramCredentialRecord
from replication.security.scram import ScramCredential

SecurityRecord: TypeAlias = ScramCredentialRecord | RemoveScramCredentialRecord


@attrs.frozen
class SecurityImage:
    """As an image: it never changes, and what a record does not touch is shared."""

    credentials: Mapping[tuple[str, str], ScramCredential] = attrs.Factory(dict)
    """By name and mechanism."""

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
            case never:
                assert_never(never)

    def records(self) -> Iterator[SecurityRecord]:
        """Applied to an empty one, these make this one."""
        for (name, mechanism), credential in sorted(
            self.credentials.items(), key=lambda each: each[0]
        ):
            yield ScramCredentialRecord(name, mechanism, **attrs.asdict(credential, recurse=False))
