"""Records of a metadata log as Kafka's tools print them; `tests/interop` asks Kafka itself."""

import json

from replication.wire.as_json import control_record_json, metadata_record_json
from replication.wire.control_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    VoterEndpoint,
    VotersRecord,
    VotersRecordVoter,
    control_batch_of,
)
from replication.wire.metadata_records import (
    PartitionChangeRecord,
    UserScramCredentialRecord,
    encode_record,
)
from storage.batch.records import Record, decode_batch


def test_a_field_at_its_default_is_left_out_only_if_it_has_a_tag() -> None:
    change = PartitionChangeRecord(partition_id=2, topic_id=bytes(range(16)), isr=[1, 2])
    assert metadata_record_json(Record(value=encode_record(change, 1))) == {
        "type": "PARTITION_CHANGE_RECORD",
        "version": 1,
        "data": {"partitionId": 2, "topicId": "AAECAwQFBgcICQoLDA0ODw", "isr": [1, 2]},
    }


def test_bytes_are_base_64() -> None:
    record = UserScramCredentialRecord(name="é", mechanism=1, salt=b"\xff\xfe", iterations=4096)
    shown = metadata_record_json(Record(value=encode_record(record, 0)))
    assert isinstance(shown, dict)
    assert (shown["data"]["name"], shown["data"]["salt"]) == ("é", "//4=")


def test_what_is_no_metadata_record_is_said_so() -> None:
    assert str(metadata_record_json(Record(offset=7, value=b"?"))).startswith("Error at 7, skip")
    assert str(metadata_record_json(Record(offset=7))).startswith("Error at 7, skip")


def test_control_records_have_kafkas_names() -> None:
    voter = VotersRecordVoter(
        voter_id=1,
        endpoints=[VoterEndpoint(name="CONTROLLER", host="h", port=1)],
        kraft_version_feature=KRaftVersionFeature(max_supported_version=1),
    )
    batch = control_batch_of(
        [KRaftVersionRecord(kraft_version=1), VotersRecord(voters=[voter])], wall_ms=0
    )
    version, voters = map(control_record_json, decode_batch(batch))
    assert version == {"version": 0, "kRaftVersion": 1}
    assert json.dumps(voters, separators=(",", ":")) == (
        '{"version":0,"voters":[{"voterId":1,"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",'
        '"endpoints":[{"name":"CONTROLLER","host":"h","port":1}],'
        '"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}'
    )
    assert control_record_json(Record(key=b"\0\0\0\1", value=bytes(6))) is None
    assert control_record_json(Record(key=b"?")) is None
