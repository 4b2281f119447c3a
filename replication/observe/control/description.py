"""The operations as OpenAPI 3.1."""

from collections.abc import Iterable
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from replication.observe.control.schemas import SCHEMAS, Schema, reference

if TYPE_CHECKING:
    from replication.observe.control.declared import Operation, Parameter

_WORDS = {
    HTTPStatus.BAD_REQUEST: "Not understood; the field is named, and nothing has changed.",
    HTTPStatus.NOT_FOUND: "There is no such thing.",
    HTTPStatus.CONFLICT: "Not possible in the state that the cluster is in.",
    HTTPStatus.GATEWAY_TIMEOUT: "It did not come about in time.",
}


def described(operations: "Iterable[Operation]") -> dict[str, Any]:
    """What `/openapi.json` says."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "understudy",
            "version": _version(),
            "description": "What steers a running cluster, of `understudy up --control PORT`.",
        },
        "paths": paths,
        "components": {"schemas": dict(SCHEMAS)},
    }


def _operation(operation: "Operation") -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": {
            str(operation.answered_with.value): _answer(operation.answer),
            **{
                str(status.value): {
                    "description": _WORDS[status],
                    "content": _json(reference("Error")),
                }
                for status in operation.all_refusals
            },
        },
    }
    parameters = [_parameter(each, "path") for each in operation.path_parameters]
    parameters += [_parameter(each, "query") for each in operation.query]
    if parameters:
        told["parameters"] = parameters
    if operation.body is not None:
        told["requestBody"] = {"required": True, "content": _json(operation.body)}
    return told


def _answer(schema: Schema | None) -> dict[str, Any]:
    if schema is None:
        return {"description": "Done."}
    return {"description": "Done.", "content": _json(schema)}


def _parameter(parameter: "Parameter", where: str) -> dict[str, Any]:
    told = {
        "name": parameter.name,
        "in": where,
        "required": where == "path",
        "schema": parameter.schema,
    }
    return told | ({"description": parameter.description} if parameter.description else {})


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _version() -> str:
    try:
        return version("understudy")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0"
