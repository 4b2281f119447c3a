"""A stand-in of a schema registry: a small HTTP server with the shape of Confluent's interface.

It keeps what it is given and checks nothing. Confluent's serializers register their schemas here.
"""

import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

from pipeline.formats.schemas import from_registry


@attrs.define
class RegistryStandIn:
    """Schemas by id, and the ids of each subject's versions."""

    url: str = ""
    schemas: dict[int, dict[str, Any]] = attrs.field(factory=dict)
    subjects: dict[str, list[int]] = attrs.field(factory=dict)
    requests: list[str] = attrs.field(factory=list)
    user_info: str | None = None
    answer: tuple[int, bytes] | None = None
    """The status and body of every answer, instead of what is asked for."""

    def add(
        self, subject: str, text: str, kind: str = "AVRO", references: list[Any] | None = None
    ) -> int:
        """Register a version of a subject, and return the id of the schema."""
        given = {"schema": text, "schemaType": kind, "references": references or []}
        return self.register(subject, given)

    def register(self, subject: str, given: dict[str, Any]) -> int:
        schema = {
            name: given[name] for name in ("schema", "schemaType", "references") if given.get(name)
        }
        number = next((n for n, known in self.schemas.items() if known == schema), None)
        if number is None:
            number = 100 + len(self.schemas)
            self.schemas[number] = schema
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answered(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "GET", ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, self.schemas[int(number)]
            case "GET", ["subjects", subject, "versions", version] if subject in self.subjects:
                versions = self.subjects[subject]
                at = len(versions) if version == "latest" else int(version)
                found = {"subject": subject, "version": at, "id": versions[at - 1]}
                return 200, found | self.schemas[versions[at - 1]]
            case "POST", ["subjects", subject, "versions"]:
                return 200, {"id": self.register(subject, body)}
            case "POST", ["subjects", subject] if subject in self.subjects:
                known = self.register(subject, body)
                at = self.subjects[subject].index(known) + 1
                return 200, {"subject": subject, "version": at, "id": known} | body
        return 404, {"error_code": 40403, "message": "Schema not found"}


@contextlib.contextmanager
def registry_stand_in() -> Iterator[RegistryStandIn]:
    stand_in = RegistryStandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            stand_in.requests.append(f"{method} {self.path}")
            status, found = stand_in.answered(method, urlsplit(self.path).path, body)
            data = json.dumps(found).encode()
            if stand_in.user_info is not None:
                wanted = base64.b64encode(stand_in.user_info.encode()).decode()
                if self.headers.get("Authorization") != f"Basic {wanted}":
                    status, data = 401, b"<html>Unauthorized</html>"
            if stand_in.answer is not None:
                status, data = stand_in.answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        from_registry.cache_clear()  # a port may be that of an earlier stand-in
        stand_in.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield stand_in
        finally:
            server.shutdown()
            thread.join()
