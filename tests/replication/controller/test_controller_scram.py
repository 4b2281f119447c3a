"""Which SCRAM credentials the controller takes."""

from replication.controller.rules.scram import alter_user_scram_credentials
from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage
from replication.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from replication.wire.metadata_records import UserScramCredentialRecord


def test_a_salt_may_be_empty() -> None:
    """ScramControlManager looks at the name, the mechanism and the iterations."""
    upsertion = ScramCredentialUpsertion(
        name="bob", mechanism=1, iterations=4096, salt=b"", salted_password=b"salted"
    )
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    decision = alter_user_scram_credentials(MetadataImage(), request)
    assert [each.error_code for each in decision.answer.results] == [ErrorCode.NONE]
    (record,) = decision.records
    assert isinstance(record, UserScramCredentialRecord)
    assert record.salt == b""
