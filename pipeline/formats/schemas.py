"""Schemas by their ids, from a registry over HTTP or from a directory.

    registry    GET URL/schemas/ids/17                      the schema of a value
                GET URL/subjects/orders-value/versions/3    what a schema refers to; `latest` too
    directory   17.avsc  18.proto  19.json                  the schema with that id
                anything else                               what schemas refer to, by its name

In a directory an Avro schema refers to a type by its full name, `com.shop.Money`, which is the file
`com.shop.Money.avsc`; a `.proto` imports `shop/money.proto`, and a `$ref` names `money.json`, by
their paths there.

Rule: nothing here takes longer than the timeout, for each request and in all of its parts.
"""

import base64
import contextlib
import http.client
import json
import socket
import threading  # noqa: TID251 - a request ends at its time, whatever the server does
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit

import attrs

from replication.errors import UnderstudyError

AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
JSON: Final = "json"

_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_REFERENCES: Final = 1000
_ENDINGS: Final = {".avsc": AVRO, ".proto": PROTOBUF, ".json": JSON}
_ACCEPTED: Final = "application/vnd.schemaregistry.v1+json, application/json"


class SchemaError(UnderstudyError):
    """An error: a schema cannot be had, or is no schema."""


class RegistryError(SchemaError):
    """An error: a registry does not answer as a registry."""


class RegistryUnreachableError(RegistryError):
    """An error: a registry does not answer at all."""


@attrs.frozen
class Schema:
    """A schema of one format: its text, and the texts of what it refers to, by their names."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


@attrs.frozen(kw_only=True)
class Registry:
    """A schema registry with Confluent's HTTP interface."""

    url: str
    user_info: str | None = attrs.field(default=None, repr=False)
    """`USER:PASSWORD` of basic authentication."""
    timeout_ms: int = 10_000

    def __attrs_post_init__(self) -> None:
        """Raise SchemaError if the URL is none."""
        parts = urlsplit(self.url)
        try:
            is_url = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # no number of a port
            is_url = False
        if not is_url:
            raise SchemaError(f"{self.url} is no URL of a schema registry, such as http://sr:8081")

    def by_id(self, number: int) -> Schema:
        return self._schema(self._get(f"/schemas/ids/{number}"))

    def latest(self, subject: str) -> int:
        """Return the id of the subject's latest version."""
        found = self._get(_version(subject, "latest"))
        if not isinstance(found.get("id"), int):
            raise self._garbage(_version(subject, "latest"))
        return int(found["id"])

    def _schema(self, found: dict[str, Any]) -> Schema:
        kind = str(found.get("schemaType") or AVRO).lower()
        if not isinstance(found.get("schema"), str):
            raise self._garbage("its schema")
        references: dict[str, str] = {}
        self._collect(found, references)
        return Schema(kind, found["schema"], tuple(references.items()))

    def _collect(self, found: dict[str, Any], into: dict[str, str]) -> None:
        """Collect what a schema refers to: first what that refers to itself."""
        for each in found.get("references") or ():
            try:
                name, path = each["name"], _version(each["subject"], str(int(each["version"])))
            except (KeyError, TypeError, ValueError) as error:
                raise self._garbage("a reference") from error
            if name in into:
                continue
            if len(into) >= _MOST_REFERENCES:
                raise RegistryError(f"a schema has more than {_MOST_REFERENCES} references")
            into[name] = ""  # of a circle, once
            referred = self._get(path)
            self._collect(referred, into)
            del into[name]
            into[name] = str(referred.get("schema"))

    def _get(self, path: str) -> dict[str, Any]:
        status, body = self._answer(path)
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if status != http.client.OK:
            said = found.get("message") if isinstance(found, dict) else None
            raise RegistryError(
                f"{self._shown}{path}: HTTP {status} {one_line(said or http.client.responses.get(status, ''))}"
            )
        if not isinstance(found, dict):
            raise self._garbage(path)
        return found

    def _answer(self, path: str) -> tuple[int, bytes]:
        """Send one request; raise RegistryError if there is no whole answer in time."""
        url, seconds = urlsplit(self.url), self.timeout_ms / 1000
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=seconds)
        ended = threading.Event()
        timer = threading.Timer(seconds, _end, [connection, ended])
        timer.daemon = True
        timer.start()
        try:
            connection.request("GET", url.path.rstrip("/") + path, headers=self._headers())
            response = connection.getresponse()
            body = response.read(_MOST_BYTES + 1)
            if ended.is_set():  # a body that is cut off is no error by itself
                raise TimeoutError
        except (OSError, http.client.HTTPException) as error:
            is_late = ended.is_set() or isinstance(error, TimeoutError)
            said = f"no answer within {self.timeout_ms} ms" if is_late else one_line(error)
            raise RegistryUnreachableError(f"{self._shown}{path}: {said}") from error
        finally:
            timer.cancel()
            connection.close()
        if len(body) > _MOST_BYTES:
            raise RegistryError(f"{self._shown}{path}: more than {_MOST_BYTES} bytes")
        return response.status, body

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": _ACCEPTED}
        if self.user_info is not None:
            token = base64.b64encode(self.user_info.encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        return headers

    def _garbage(self, path: str) -> RegistryError:
        return RegistryError(f"{self._shown}: no answer of a schema registry about {path}")

    @property
    def _shown(self) -> str:
        """The URL without a password."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


@attrs.frozen
class SchemaDirectory:
    """A directory with a file for each schema id."""

    path: str

    def by_id(self, number: int) -> Schema:
        root = Path(self.path)
        for ending, kind in _ENDINGS.items():
            file = root / f"{number}{ending}"
            if file.is_file():
                return Schema(kind, _read(file), tuple(self._references(root, ending)))
        names = ", ".join(f"{number}{ending}" for ending in _ENDINGS)
        raise SchemaError(f"{self.path} has no schema {number}: none of {names}")

    def latest(self, subject: str) -> int:
        raise SchemaError(f"a directory of schemas has no subject {subject}: give the schema's id")

    @staticmethod
    def _references(root: Path, ending: str) -> Iterator[tuple[str, str]]:
        for file in sorted(root.rglob(f"*{ending}")):
            if file.is_file() and not file.stem.isdecimal():
                name = str(file.relative_to(root))
                yield name.removesuffix(ending) if ending == ".avsc" else name, _read(file)


SchemaSource: TypeAlias = Registry | SchemaDirectory


def schema_by_id(source: SchemaSource, number: int) -> Schema:
    """Return the schema with this id; raise SchemaError if it cannot be had."""
    return from_registry(source, number) if isinstance(source, Registry) else source.by_id(number)


@lru_cache(maxsize=4096)
def from_registry(registry: Registry, number: int) -> Schema:
    """Return a schema that is asked for once: an id's never changes. No failure is remembered."""
    return registry.by_id(number)


def one_line(said: object, most: int = 300) -> str:
    """Return a text or an error as one line of at most `most` characters."""
    text = " ".join(str(said).split()) or type(said).__name__
    return text if len(text) <= most else f"{text[:most]}..."


def _end(connection: http.client.HTTPConnection, ended: threading.Event) -> None:
    ended.set()
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _version(subject: str, version: str) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions/{version}"


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, ValueError) as error:
        raise SchemaError(f"{file}: {one_line(error)}") from error
