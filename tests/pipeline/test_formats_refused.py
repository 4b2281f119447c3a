"""Registries and options that do not help: one line each, in a bounded time."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
pytest.importorskip("fastavro", reason="the formats extra is not installed: understudy[formats]")
pytest.importorskip("httpx2", reason="Confluent's serializers need it")

from pipeline.formats.schemas import SchemaError
from pipeline.source.errors import OptionError
from tests.pipeline.logs import read
from tests.pipeline.registry import RegistryStandIn
from tests.pipeline.wire_format import ORDER_1, avro, log_of, options


def fails(given: dict[str, str], said: str) -> None:
    with pytest.raises((SchemaError, OptionError)) as caught:
        read(given)
    assert said in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_registry_that_does_not_help_is_one_line(
    registry: RegistryStandIn, tmp_path: Path
) -> None:
    path = log_of(tmp_path / "log", avro(registry, ORDER_1, {"id": 1, "customer": "", "cents": 1}))
    given = options(registry, path, "avro")
    fails(given | {"value.subject": "nobody"}, "option value.format: nobody: http")
    fails(given | {"value.schema.id": "7"}, "HTTP 404 Schema not found")
    fails(given | {"value.format": "json"}, "its format is avro, not json")
    registry.user_info = "me:secret"
    fails(given, "HTTP 401 Unauthorized")
    named = {"schema.registry.basic.auth.user.info": "me:secret"}
    assert read(given | named)[0]["id"] == 1
    registry.user_info = None
    for status, body, said in (
        (200, b"<html>hello</html>", "no answer of a schema registry"),
        (200, b'{"id": 100}', "no answer of a schema registry"),
        (200, b"[]", "no answer of a schema registry"),
        (500, b'{"message": "on\\nfire"}', "HTTP 500 on fire"),
        (200, b'{"id": 7, "schema": "{\\"type\\": \\"recrod\\"}"}', "no Avro schema"),
        (200, b'{"id": 7, "schema": "{", "schemaType": "AVRO"}', "no Avro schema"),
    ):
        registry.answer = status, body
        fails(given | {"value.schema.id": "88"}, said)
    registry.answer = 200, b'{"schema": "message {", "schemaType": "PROTOBUF"}'
    fails(given | {"value.format": "protobuf", "value.schema.id": "89"}, "no .proto: ")
    registry.answer = 200, b'{"schema": "{\\"type\\": 7}", "schemaType": "JSON"}'
    fails(given | {"value.format": "json", "value.schema.id": "90"}, "no JSON Schema: ")
    fails(given | {"schema.registry.url": "http://127.0.0.1:1"}, "Connection refused")


def test_a_registry_that_answers_too_slowly_is_left_in_time(tmp_path: Path) -> None:
    import socket
    import threading

    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while not ended.wait(0.02):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    port = listener.getsockname()[1]
    given = {
        "path": log_of(tmp_path / "log", [b"x"]),
        "value.format": "avro",
        "value.schema.id": "1",
    }
    given |= {
        "schema.registry.url": f"http://127.0.0.1:{port}",
        "schema.registry.timeout.ms": "200",
    }
    fails(given, "no answer within 200 ms")  # once its thousand bytes are there it says otherwise
    ended.set()
    thread.join()
    listener.close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"value.fromat": "avro"}, "unknown option value.fromat; did you mean value.format?"),
        ({"value.format": "xml"}, "option value.format: 'xml' is none of avro, protobuf, json"),
        ({"value.format": "avro"}, "give either schema.registry.url or schema.directory"),
        ({"value.format": "avro", "schema.directory": "no/such"}, "no/such is no directory"),
        (
            {"value.format": "avro", "schema.registry.url": "sr:8081"},
            "is no URL of a schema registry",
        ),
        ({"value.format": "avro", "schema.registry.url": "http://sr"}, "give value.schema.id"),
        ({"value.schema.id": "7"}, "option value.schema.id: give value.format too"),
        ({"schema.directory": "."}, "option schema.directory: give value.format too"),
        (
            {"value.format": "avro", "value.message": "M", "schema.directory": "."},
            "only Protobuf has",
        ),
        (
            {"value.format": "avro", "schema.directory": ".", "value.schema.id": "0"},
            "option value.schema.id: '0' is no whole number",
        ),
        (
            {"value.format": "avro", "schema.directory": "tests", "value.schema.id": "7"},
            "option value.format: schema 7: tests has no schema 7: none of 7.avsc, 7.proto, 7.json",
        ),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path: Path, more: dict[str, str], said: str) -> None:
    fails({"path": log_of(tmp_path / "log", [b"x"])} | more, said)
