"""What is asked and answered, as JSON Schema; each has the name that the description gives it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from replication.cluster.interface import NodeStatus
from replication.faults.rules.words import HIT_SCHEMA, RULE_SCHEMA

Schema: TypeAlias = Mapping[str, Any]

NODE_IDS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}


def record(properties: Mapping[str, Schema], *, optional: Sequence[str] = ()) -> Schema:
    """An object with these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def reference(name: str) -> Schema:
    """To one of SCHEMAS."""
    assert name in SCHEMAS, f"{name} is declared"
    return {"$ref": f"#/components/schemas/{name}"}


def resolved(schema: Schema) -> Schema:
    """What a reference refers to."""
    referred = schema.get("$ref")
    return schema if referred is None else SCHEMAS[referred.rpartition("/")[2]]


def listed(name: str) -> Schema:
    """An array of one of SCHEMAS."""
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
            "leader": {"type": ["integer", "null"], "description": "Null where nobody leads."},
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
                "description": "All the rest where it is left out.",
            },
            "one_way": {
                "type": "boolean",
                "description": "Only what `nodes` send is lost.",
            },
        },
        optional=("others", "one_way"),
    ),
    "FaultRule": RULE_SCHEMA,
    "AddedRule": record(
        {
            "number": {"type": "integer", "minimum": 1},
            "rule": {"$ref": "#/components/schemas/FaultRule"},
            "calls": {"type": "integer", "description": "How many requests it has matched."},
            "hits": {"type": "integer", "description": "To how many it was applied."},
        }
    ),
    "Hit": HIT_SCHEMA,
    "Error": record(
        {
            "error": {"type": "string", "description": "One line."},
            "field": {"type": "string", "description": "What of the request is wrong."},
        },
        optional=("field",),
    ),
}
