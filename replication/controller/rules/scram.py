"""SCRAM credentials: AlterUserScramCredentials, and the first users of a cluster.

(ScramControlManager, KIP-554, KIP-900.) A request that names a user twice is refused for that
user, whichever the mechanisms are; the other users of the request are altered.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeAlias

from replication.controller.rules.decisions import Decision
from replication.errors import ConfigError, ErrorCode, KafkaError
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.security_image import credential_record
from replication.security.rules.scram import (
    MAXIMUM_ITERATIONS,
    MINIMUM_ITERATIONS,
    SCRAM_NUMBERS,
    ScramCredential,
)
from replication.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from replication.wire.metadata_records import MetadataRecord, RemoveUserScramCredentialRecord

_ADD_SCRAM = re.compile(r"(SCRAM-SHA-(?:256|512))=\[(.*)\]")

Alteration: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion


def alter_user_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> Decision[AlterUserScramCredentialsResponse]:
    asked: list[Alteration] = [*request.deletions, *request.upsertions]
    seen: set[str] = set()
    failed: dict[str, KafkaError] = {}
    for each in asked:
        if each.name in failed:
            continue
        try:
            _check(image, each, twice=each.name in seen)
        except KafkaError as error:
            failed[each.name] = error
        seen.add(each.name)
    records = tuple(_record(each) for each in asked if each.name not in failed)
    names = dict.fromkeys(each.name for each in asked)
    results = [_result(name, failed.get(name)) for name in names]
    return Decision(AlterUserScramCredentialsResponse(results=results), records)


def _check(image: MetadataImage, asked: Alteration, *, twice: bool) -> None:
    if twice:
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    if not asked.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = SCRAM_NUMBERS.get(asked.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(asked, ScramCredentialDeletion):
        if (asked.name, mechanism) not in image.security.credentials:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    elif not asked.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Password must not be empty")
    elif not MINIMUM_ITERATIONS <= asked.iterations <= MAXIMUM_ITERATIONS:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"Iterations must be from {MINIMUM_ITERATIONS} to {MAXIMUM_ITERATIONS}",
        )


def _record(asked: Alteration) -> MetadataRecord:
    if isinstance(asked, ScramCredentialDeletion):
        return RemoveUserScramCredentialRecord(name=asked.name, mechanism=asked.mechanism)
    mechanism = SCRAM_NUMBERS[asked.mechanism]
    credential = ScramCredential.of_salted(
        mechanism,
        salt=asked.salt,
        salted_password=asked.salted_password,
        iterations=asked.iterations,
    )
    return credential_record(asked.name, mechanism, credential)


def _result(name: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=name)
    return AlterUserScramCredentialsResult(
        user=name, error_code=error.code, error_message=error.detail
    )


# The first users: brokers must log in before a client can add any.


def first_credentials(entries: Iterable[str], salts: Iterator[bytes]) -> list[MetadataRecord]:
    """Return the records of `SCRAM-SHA-256=[name=admin,password=secret,iterations=8192]` entries.

    The form is that of kafka-storage's --add-scram, where `saltedpassword` and `salt`, in base 64, may
    take the place of a password. Raise ConfigError, which does not repeat a password, for an entry
    that is not in that form.
    """
    return [_first_credential(entry, salt) for entry, salt in zip(entries, salts, strict=False)]


def _first_credential(entry: str, salt: bytes) -> MetadataRecord:
    found = _ADD_SCRAM.fullmatch(entry.strip())
    if found is None:
        raise _not_a_credential()
    mechanism, options = found[1], _options(found[2])
    name, iterations = options.pop("name", ""), options.pop("iterations", str(MINIMUM_ITERATIONS))
    given_salt, salted = (_decoded(options.pop(each, "")) for each in ("salt", "saltedpassword"))
    password = options.pop("password", "")
    if (
        options
        or not name
        or bool(password) == bool(salted)
        or (salted and not given_salt)
        or not iterations.isdecimal()
        or not MINIMUM_ITERATIONS <= int(iterations) <= MAXIMUM_ITERATIONS
    ):
        raise _not_a_credential()
    make = partial(ScramCredential.of, password=password)
    if salted:
        make = partial(ScramCredential.of_salted, salted_password=salted)
    credential = make(mechanism, salt=given_salt or salt, iterations=int(iterations))
    return credential_record(name, mechanism, credential)


def _options(text: str) -> dict[str, str]:
    pairs = (each.partition("=") for each in text.split(","))
    return {key.strip(): value.strip().strip('"') for key, _, value in pairs}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise _not_a_credential() from None


def _not_a_credential() -> ConfigError:
    return ConfigError(
        "add-scram: expected SCRAM-SHA-256=[name=...,password=...] or SCRAM-SHA-512=[...], with salt"
        " and saltedpassword in base 64 instead of a password, and"
        f" iterations from {MINIMUM_ITERATIONS} to {MAXIMUM_ITERATIONS}"
    )
