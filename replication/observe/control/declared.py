"""The declaration of an operation, from which its route and its description are derived.

request ── body is an object? ── the operation's own checks ── done ── answer as JSON
                 └──────────────── 400: {"error": "delay_ms: ...", "field": "delay_ms"}

400  invalid: the field is named               409  not possible now
404  no such node, topic or rule               504  the time limit passed
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, TypeAlias

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from replication.cluster.interface import AnyCluster, NotInTimeError
from replication.errors import UnderstudyError
from replication.faults import FaultRuleError
from replication.faults.node_faults import NotHitError
from replication.observe.control.openapi import Schema, resolved
from storage.errors import StorageError

MOST_BYTES = 64 * 1024
"""The longest request body."""


class NotThereError(UnderstudyError):
    """A request names a node, a topic or a rule that does not exist."""


class FieldError(UnderstudyError):
    """A request is invalid; `field` names the part that is wrong."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


@attrs.frozen(kw_only=True)
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


@attrs.frozen(kw_only=True)
class Parameter:
    """A parameter of the path, or an optional one of the query."""

    name: str
    schema: Schema
    description: str = ""


@attrs.frozen(kw_only=True)
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
                return _refusal(error)
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
        data = b""
        async with aclosing(request.stream()) as chunks:
            async for chunk in chunks:
                data += chunk
                if len(data) > MOST_BYTES:
                    raise FieldError("body", f"longer than {MOST_BYTES} bytes")
        if not data and self.body is None:
            return {}
        try:
            body = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise FieldError("body", f"not JSON: {error}") from error
        if not isinstance(body, dict):
            raise FieldError("body", "not an object")
        known = [] if self.body is None else sorted(resolved(self.body)["properties"])
        for word in sorted(body.keys() - known):
            can = ", ".join(known) or "none"
            raise FieldError(word, f"unknown; the fields are {can}")
        return body


def _refusal(error: Exception) -> JSONResponse:
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
