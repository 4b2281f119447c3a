"""The TLS keys of brokers and clients (SslConfigs), and their overrides for one listener.

    ssl.keystore.location=/etc/kafka/all.pem                          applies to every listener
    listener.name.outside.ssl.keystore.location=/etc/kafka/out.pem    applies to OUTSIDE only

Keys and certificates are PEM (KIP-651), in files or in the configuration itself. Java's key
stores (JKS, which is Kafka's default, and PKCS12) are refused, by the configured type and by the
content of the file; the error contains the command that converts them to PEM.
"""

import shlex
from collections.abc import Mapping
from typing import TypeVar

import attrs

from replication.config.keys import secret, specs, text, words
from replication.errors import ConfigError
from storage.attributes import frozen

K = TypeVar("K", bound="TlsKeys")

RELOADABLE = frozenset(
    """
    ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
    ssl.keystore.type ssl.truststore.certificates ssl.truststore.location ssl.truststore.type
    """.split()  # noqa: SIM905
)
"""The keys that can be changed for one listener while a broker runs (SslConfigs)."""

FORMS = ("PEM", "PKCS12", "JKS")
VERSIONS = ("TLSv1.2", "TLSv1.3")


@frozen(kw_only=True)
class TlsKeys:
    """The certificate that one side of a connection shows, and the certificates that it trusts."""

    ssl_keystore_type: str = text(
        "PEM",
        "The format of the private key and certificates of this side of a connection. Only PEM"
        " is read; with another value, the error names the command that converts the file.",
        choices=FORMS,
    )
    ssl_keystore_location: str | None = text(
        None,
        "The path of a PEM file with the private key and the certificate chain of this side of"
        " a connection. A broker needs it for listeners with TLS; a client needs it only if"
        " brokers ask for a certificate.",
    )
    ssl_keystore_certificate_chain: str | None = secret(
        "The certificate chain of this side of a connection, as PEM text. Use it with"
        " `ssl.keystore.key` in place of `ssl.keystore.location`."
    )
    ssl_keystore_key: str | None = secret(
        "The private key of this side of a connection, as PEM text. Use it with"
        " `ssl.keystore.certificate.chain` in place of `ssl.keystore.location`."
    )
    ssl_key_password: str | None = secret(
        "The password that decrypts the private key. Set it only if the key is encrypted."
    )
    ssl_truststore_type: str = text(
        "PEM",
        "The format of the trusted certificates. Only PEM is read; with another value, the"
        " error names the command that converts the file.",
        choices=FORMS,
    )
    ssl_truststore_location: str | None = text(
        None,
        "The path of a PEM file with the certificates that are trusted to sign the other side's"
        " certificate. Without it, the certificates that the operating system trusts are used.",
    )
    ssl_truststore_certificates: str | None = secret(
        "The trusted certificates, as PEM text. Use it in place of `ssl.truststore.location`."
    )
    ssl_enabled_protocols: tuple[str, ...] = words(
        VERSIONS,
        "The versions of TLS that connections may use, separated by commas. Both sides choose"
        " the newest version that they share.",
        choices=VERSIONS,
    )
    ssl_endpoint_identification_algorithm: str = text(
        "https",
        "The check that a server's certificate is for the host that was connected to: `https`"
        " makes it, an empty value leaves it out. Leave it out only in tests, because it"
        " protects against impostors.",
        choices=["https", ""],
    )


def overridden(config: TlsKeys, kind: type[K], overrides: Mapping[str, str]) -> K:
    """Return the keys of `kind` from `config`, replaced by `overrides` for one listener."""
    declared = specs(kind)
    found = {each.name: getattr(config, each.name) for each in attrs.fields(kind)}
    for name, value in overrides.items():
        if name in declared:
            found[name.replace(".", "_")] = declared[name].value_of(name, value)
    return kind(**found)


def how_to_convert(form: str, path: str, *, trusted: bool) -> str:
    """Return the command that converts a Java key store to PEM; JKS is first made into PKCS12."""
    base = path.rsplit(".", 1)[0]
    store, first = shlex.quote(path), ""
    if form == "JKS":
        store = shlex.quote(f"{base}.p12")
        options = f"-srckeystore {shlex.quote(path)} -destkeystore {store} -deststoretype PKCS12"
        first = f"keytool -importkeystore {options} && "
    kept = "-nokeys" if trusted else "-nodes"
    return f"{first}openssl pkcs12 -in {store} -out {shlex.quote(f'{base}.pem')} {kept}"


def _check_form(form: str, path: str | None, *, what: str, where: str) -> None:
    if form != "PEM":
        command = how_to_convert(form, path or "store.p12", trusted=what == "truststore")
        raise ConfigError(
            f"{where}ssl.{what}.type={form}: only PEM is supported; convert it with `{command}`"
            f" and set ssl.{what}.location, with ssl.{what}.type=PEM"
        )


def check_tls(keys: TlsKeys, *, where: str = "") -> None:
    """Check the keys of TLS.

    Raise ConfigError if a private key has no certificates, if both come from two places, or if
    their format is not supported.
    """
    _check_form(keys.ssl_keystore_type, keys.ssl_keystore_location, what="keystore", where=where)
    _check_form(
        keys.ssl_truststore_type, keys.ssl_truststore_location, what="truststore", where=where
    )
    in_place = (keys.ssl_keystore_key is not None, keys.ssl_keystore_certificate_chain is not None)
    if any(in_place) and not all(in_place):
        raise ConfigError(
            f"{where}ssl.keystore.key and ssl.keystore.certificate.chain: expected both or neither"
        )
    if any(in_place) and keys.ssl_keystore_location is not None:
        raise ConfigError(
            f"{where}ssl.keystore.location: expected a file, or ssl.keystore.key and "
            "ssl.keystore.certificate.chain, not both"
        )
