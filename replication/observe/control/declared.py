"""The declaration of an operation, from which its route and its description are derived.

    request ── body is an object? ── the operation's own checks ── done ── answer as JSON
                     └──────────────── 400: {"error": "delay_ms: ...", "field": "delay_ms"}

    400  invalid: the field is named               409  not possible now
    404  no such node, topic or rule               504  the time limit passed

The description is OpenAPI 3.1, with JSON Schemas. It is written here as plain data: a library that
derives it (apispec, pydantic) would be a run-time dependency larger than this module. A test
validates the result with openapi-spec-validator.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from replication import __version__
from replication.cluster.interface import AnyCluster, NodeStatus, NotInTimeError
from replication.errors import UnderstudyError
from replication.faults import FaultRuleError
from replication.faults.node_faults import NotHitError
from replication.faults.rules.as_json import HIT_SCHEMA, RULE_SCHEMA, Schema, record
from storage.attributes import frozen
from storage.errors import StorageError

NODE_IDS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}

MOST_BYTES = 64 * 1024
"""The longest request body."""


def reference(name: str) -> Schema:
    """Return a reference to one of SCHEMAS."""
    assert name in SCHEMAS, f"{name} is declared"
    return {"$ref": f"#/components/schemas/{name}"}


def resolved(schema: Schema) -> Schema:
    """Return the schema that `schema` refers to, or `schema` itself if it is no reference."""
    referred = schema.get("$ref")
    return schema if referred is None else SCHEMAS[referred.rpartition("/")[2]]


def listed(name: str) -> Schema:
    """Return the schema of an array of one of SCHEMAS."""
    return {"type": "array", "items": reference(name)}


SCHEMAS: Mapping[str, Schema] = {
    "Node": record(
        {
            "id": {"type": "integer", "description": "0 is the controller."},
            "status": {"enum": [each.value for each in NodeStatus]},
            "address": {"type": "string", "description": "host:port of its first listener."},
        }
    ),
    "Partition": record(
        {
            "partition": {"type": "integer"},
            "leader": {"type": ["integer", "null"], "description": "Null if there is no leader."},
            "leader_epoch": {"type": "integer"},
            "replicas": NODE_IDS,
            "isr": NODE_IDS,
        }
    ),
    "Topic": record(
        {
            "name": {"type": "string"},
            "partitions": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/Partition"},
            },
        }
    ),
    "Cut": record(
        {"from": {"type": "integer"}, "to": {"type": "integer"}},
    ),
    "CutRequest": record(
        {
            "nodes": {**NODE_IDS, "minItems": 1},
            "others": {
                "type": ["array", "null"],
                "items": {"type": "integer", "minimum": 0},
                "minItems": 1,
                "description": "All other nodes, if it is left out.",
            },
            "one_way": {
                "type": "boolean",
                "description": "Whether only what `nodes` send is lost.",
            },
        },
        optional=("others", "one_way"),
    ),
    "FaultRule": RULE_SCHEMA,
    "AddedRule": record(
        {
            "number": {"type": "integer", "minimum": 1},
            "rule": {"$ref": "#/components/schemas/FaultRule"},
            "calls": {
                "type": "integer",
                "description": "The number of requests that it has matched.",
            },
            "hits": {
                "type": "integer",
                "description": "The number of requests that it was applied to.",
            },
        }
    ),
    "Hit": HIT_SCHEMA,
    "Error": record(
        {
            "error": {"type": "string", "description": "The reason, in one line."},
            "field": {"type": "string", "description": "The part of the request that is wrong."},
        },
        optional=("field",),
    ),
}

_REFUSALS = {
    HTTPStatus.BAD_REQUEST: "The request is invalid. The field is named, and nothing has changed.",
    HTTPStatus.NOT_FOUND: "The broker, topic or rule does not exist.",
    HTTPStatus.CONFLICT: "The request is not possible in the present state of the cluster.",
    HTTPStatus.GATEWAY_TIMEOUT: "The time limit passed first.",
}


def description_of(operations: "Iterable[ControlOperation]") -> dict[str, Any]:
    """Return the description that `/openapi.json` serves."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "understudy",
            "version": __version__,
            "description": "Control of a running cluster: `understudy up --control PORT`.",
        },
        "paths": paths,
        "components": {"schemas": dict(SCHEMAS)},
    }


def _operation(operation: "ControlOperation") -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": {
            str(operation.answered_with.value): _answer(operation.answer),
            **{
                str(status.value): {
                    "description": _REFUSALS[status],
                    "content": _json(reference("Error")),
                }
                for status in operation.all_refusals
            },
        },
    }
    parameters = [_parameter(each, "path") for each in operation.path_parameters]
    parameters += [_parameter(each, "query") for each in operation.query]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _json(operation.body)}
    return described


def _answer(schema: Schema | None) -> dict[str, Any]:
    if schema is None:
        return {"description": "Done."}
    return {"description": "Done.", "content": _json(schema)}


def _parameter(parameter: "Parameter", where: str) -> dict[str, Any]:
    described = {
        "name": parameter.name,
        "in": where,
        "required": where == "path",
        "schema": parameter.schema,
    }
    return described | ({"description": parameter.description} if parameter.description else {})


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


class NotThereError(UnderstudyError):
    """A request names a node, a topic or a rule that does not exist."""


class FieldError(UnderstudyError):
    """A request is invalid; `field` names the part that is wrong."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


@frozen(kw_only=True)
class ControlRequest:
    """One request, as its operation sees it."""

    cluster: AnyCluster
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]

    def number(
        self, name: str, given: str | None, *, least: int, default: int | None = None
    ) -> int:
        """Return `given`, a number in the path or the query, or `default`; raise FieldError."""
        if given is None:
            assert default is not None, "a path has all its parameters"
            return default
        if not (given.isascii() and given.isdigit() and len(given) < 10 and int(given) >= least):
            raise FieldError(name, f"{given!r} is not a whole number of at least {least}")
        return int(given)


Do: TypeAlias = Callable[[ControlRequest], Awaitable[Any]]


@frozen(kw_only=True)
class Parameter:
    """A parameter of the path, or an optional one of the query."""

    name: str
    schema: Schema
    description: str = ""


@frozen(kw_only=True)
class ControlOperation:
    """One operation of the control API."""

    name: str
    """The name in camel case, which generated clients use."""
    method: str
    path: str
    summary: str
    do: Do
    answer: Schema | None = None
    """The schema of the response; None for status 204 without a body."""
    status: HTTPStatus = HTTPStatus.OK
    body: Schema | None = None
    path_parameters: Sequence[Parameter] = ()
    query: Sequence[Parameter] = ()
    refusals: Sequence[HTTPStatus] = ()
    """The possible refusals, besides 400 for an invalid request."""

    @property
    def all_refusals(self) -> Sequence[HTTPStatus]:
        asks = self.method == "POST" or self.path_parameters or self.query
        return [*([HTTPStatus.BAD_REQUEST] if asks else []), *self.refusals]

    @property
    def answered_with(self) -> HTTPStatus:
        return HTTPStatus.NO_CONTENT if self.answer is None else self.status

    def route(self, cluster: AnyCluster) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                answer = await self.do(
                    ControlRequest(
                        cluster=cluster,
                        path=request.path_params,
                        query=self._query_of(request),
                        body=await self._body_of(request),
                    )
                )
            except (UnderstudyError, StorageError, OSError) as error:
                return refusal(error)
            if self.answer is None:
                return Response(status_code=self.answered_with)
            return JSONResponse(answer, status_code=self.answered_with)

        return Route(self.path, endpoint, methods=[self.method], name=self.name)

    def _query_of(self, request: Request) -> Mapping[str, str]:
        known = {each.name for each in self.query}
        for name in request.query_params:
            if name not in known:
                raise FieldError(
                    name, f"unknown; the parameters are {', '.join(sorted(known)) or 'none'}"
                )
        return request.query_params

    async def _body_of(self, request: Request) -> Mapping[str, Any]:
        known = None if self.body is None else resolved(self.body)["properties"]
        return await read_body(request, known)


async def read_body(request: Request, fields: Iterable[str] | None) -> Mapping[str, Any]:
    """Return the JSON object in a request's body, which may have these fields; raise FieldError.

    If `fields` is None, there may be no body.
    """
    data = b""
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            data += chunk
            if len(data) > MOST_BYTES:
                raise FieldError("body", f"longer than {MOST_BYTES} bytes")
    if not data and fields is None:
        return {}
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FieldError("body", f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise FieldError("body", "not an object")
    known = sorted(fields or ())
    for word in sorted(body.keys() - known):
        can = ", ".join(known) or "none"
        raise FieldError(word, f"unknown; the fields are {can}")
    return body


def refusal(error: Exception) -> JSONResponse:
    """Return the response for a request that failed: one line, and the field that is wrong."""
    message = " ".join(str(error).split())
    answer = {"error": message}
    if isinstance(error, FieldError | FaultRuleError):
        answer["field"] = error.field
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), _ELSE)
    return JSONResponse(answer, status_code=status)


_STATUSES: Sequence[tuple[type[Exception], HTTPStatus]] = (
    (FieldError, HTTPStatus.BAD_REQUEST),
    (FaultRuleError, HTTPStatus.BAD_REQUEST),
    (NotThereError, HTTPStatus.NOT_FOUND),
    (NotHitError, HTTPStatus.GATEWAY_TIMEOUT),
    (NotInTimeError, HTTPStatus.GATEWAY_TIMEOUT),
)
_ELSE = HTTPStatus.CONFLICT
