"""Certificates for tests, made once for all of them."""

import datetime as dt
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

from replication.config.tls import TlsKeys

trustme = pytest.importorskip("trustme", reason="no trustme: `make test` installs it")

HOST = "127.0.0.1"


@attrs.frozen
class Certificates:
    """An authority, and keys that it has signed."""

    authority: Any
    """A trustme.CA."""

    @property
    def trusted(self) -> str:
        return str(self.authority.cert_pem.bytes(), "ascii")

    def issued(self, *names: str, common_name: str | None = None) -> TlsKeys:
        """The keys of one who can show a certificate for `names`."""
        issued = self.authority.issue_cert(*names or (HOST,), common_name=common_name)
        return TlsKeys(
            ssl_keystore_key=issued.private_key_pem.bytes().decode(),
            ssl_keystore_certificate_chain="".join(
                each.bytes().decode() for each in issued.cert_chain_pems
            ),
            ssl_truststore_certificates=self.trusted,
        )

    @property
    def trusting(self) -> TlsKeys:
        """The keys of one who has nothing to show, and believes the authority."""
        return TlsKeys(ssl_truststore_certificates=self.trusted)


@cache
def certificates() -> Certificates:
    return Certificates(trustme.CA(key_type=trustme.KeyType.ECDSA))


@cache
def broker_keys() -> TlsKeys:
    return certificates().issued(HOST, "localhost")


@cache
def expired_keys() -> TlsKeys:
    """Return the keys of a broker whose certificate has expired."""
    long_ago = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    issued = certificates().authority.issue_cert(HOST, "localhost", not_after=long_ago)
    return TlsKeys(
        ssl_keystore_key=issued.private_key_pem.bytes().decode(),
        ssl_keystore_certificate_chain=issued.cert_chain_pems[0].bytes().decode(),
        ssl_truststore_certificates=certificates().trusted,
    )


@cache
def stranger() -> Certificates:
    """An authority that nobody trusts."""
    return Certificates(trustme.CA(key_type=trustme.KeyType.ECDSA))


def in_pkcs8(key: str) -> str:
    """The one form of a key that Java reads; everybody else does too."""
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    loaded = serialization.load_pem_private_key(key.encode(), password=None)
    return str(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        "ascii",
    )


def in_files(keys: TlsKeys, directory: Path, name: str) -> tuple[str, str]:
    """The same as the two files that stock clients want: key with certificates, authority."""
    own, trusted = directory / f"{name}.pem", directory / "trusted.pem"
    own.write_text(f"{keys.ssl_keystore_key or ''}{keys.ssl_keystore_certificate_chain or ''}")
    trusted.write_text(keys.ssl_truststore_certificates or "")
    return str(own), str(trusted)
