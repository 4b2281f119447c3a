"""The description of the operations as OpenAPI 3.1, and the JSON Schemas in it.

It is written here as plain data: a library that derives it (apispec, pydantic) would be a run-time
dependency larger than this module. A test validates the result with openapi-spec-validator.
"""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeAlias

from replication.cluster.interface import NodeStatus
from replication.faults.rules.words import HIT_SCHEMA, RULE_SCHEMA

if TYPE_CHECKING:
    from replication.observe.control.declared import ControlOperation, Parameter

Schema: TypeAlias = Mapping[str, Any]

NODE_IDS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}


def record(properties: Mapping[str, Schema], *, optional: Sequence[str] = ()) -> Schema:
    """Return the schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


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
            "version": _version(),
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


def _version() -> str:
    try:
        return version("understudy")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0"
