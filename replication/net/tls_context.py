"""The TLS context of connections, made from configuration keys.

A missing file, a key that does not fit its certificate, or a wrong password is a ConfigError of one
line that names the configuration key, when a node starts.
"""

import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from replication.config.tls import TlsKeys, check_tls, how_to_convert
from replication.errors import ConfigError

CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_MAGIC = {"JKS": b"\xfe\xed\xfe\xed", "PKCS12": b"\x30\x82"}  # the latter begins a DER sequence
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def client_context(keys: TlsKeys) -> ssl.SSLContext:
    """Return the context of connections that we make; a peer may ask for our certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = keys.ssl_endpoint_identification_algorithm == "https"
    context.verify_mode = ssl.CERT_REQUIRED
    _prepare(context, keys, purpose=ssl.Purpose.SERVER_AUTH)
    return context


def server_context(keys: TlsKeys, *, client_auth: str = "none") -> ssl.SSLContext:
    """Return the context of accepted connections; `client_auth` as in `ssl.client.auth`."""
    check_tls(keys)
    if keys.ssl_keystore_location is None and keys.ssl_keystore_key is None:
        raise ConfigError("ssl.keystore.location is missing: a listener with TLS has a certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = CLIENT_AUTH[client_auth]
    context.num_tickets = 0  # sessions are not resumed
    _prepare(context, keys, purpose=ssl.Purpose.CLIENT_AUTH)
    return context


def _prepare(context: ssl.SSLContext, keys: TlsKeys, *, purpose: ssl.Purpose) -> None:
    check_tls(keys)
    spoken = [_VERSIONS[name] for name in keys.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(spoken), max(spoken)
    if context.verify_mode != ssl.CERT_NONE:
        _load_trusted(context, keys, purpose)
    with _own_certificates(keys) as path:
        if path is not None:
            _load_own(context, path, keys)


def _load_trusted(context: ssl.SSLContext, keys: TlsKeys, purpose: ssl.Purpose) -> None:
    try:
        if keys.ssl_truststore_certificates is not None:
            context.load_verify_locations(cadata=keys.ssl_truststore_certificates)
        elif keys.ssl_truststore_location is not None:
            context.load_verify_locations(cafile=keys.ssl_truststore_location)
        else:
            context.load_default_certs(purpose)
    except (OSError, ValueError) as error:
        where = keys.ssl_truststore_location
        name = "certificates" if where is None else f"location={where}"
        why = _of_java(where, trusted=True) or _why(error)
        raise ConfigError(f"ssl.truststore.{name}: {why}") from error


@contextmanager
def _own_certificates(keys: TlsKeys) -> Iterator[str | None]:
    """Provide a file with our key and certificates, from which alone `ssl` reads them."""
    if keys.ssl_keystore_key is None:
        yield keys.ssl_keystore_location
        return
    assert keys.ssl_keystore_certificate_chain is not None, "checked before"
    # Readable by this user alone, and gone before anything is served.
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
        file.write(keys.ssl_keystore_key.strip() + "\n" + keys.ssl_keystore_certificate_chain)
    try:
        yield file.name
    finally:
        with suppress(OSError):
            Path(file.name).unlink()


def _load_own(context: ssl.SSLContext, path: str, keys: TlsKeys) -> None:
    password = keys.ssl_key_password
    try:
        # Without a password `ssl` would ask the terminal for one.
        context.load_cert_chain(path, password=lambda: password or "")
    except (OSError, ValueError) as error:
        where = keys.ssl_keystore_location
        name = "key" if where is None else f"location={where}"
        why = _of_java(where, trusted=False) or _why(error)
        raise ConfigError(f"ssl.keystore.{name}: {why}") from error


def _of_java(path: str | None, *, trusted: bool) -> str | None:
    """Return the reason for a refused Java store; None if the file is none by its first bytes."""
    try:
        begin = b"" if path is None else Path(path).read_bytes()[:4]
    except OSError:
        return None
    form = next((form for form, magic in _MAGIC.items() if begin.startswith(magic)), None)
    if path is None or form is None:
        return None
    command = how_to_convert(form, path, trusted=trusted)
    return f"it is {form}, and only PEM is read here; make it with `{command}`"


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason:
            return error.reason.lower().replace("_", " ")
    elif isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return "expected PEM, a private key with its certificates, and its password if it has one"
