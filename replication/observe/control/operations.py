"""Every operation of the control API.

The file is long because it is one catalogue: the operations, and what each does.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any, TypeAlias, cast

import attrs
from starlette.routing import BaseRoute

from replication.cluster.interface import (
    AnyCluster,
    FaultControl,
    NodeSummary,
    PartitionSummary,
)
from replication.faults import AddedRule
from replication.faults.rules.as_json import hit_to_json, record, rule_from_json, rule_to_json
from replication.observe.control.declared import (
    ControlOperation,
    ControlRequest,
    FieldError,
    NotThereError,
    Parameter,
    description_of,
    listed,
    reference,
)
from storage.attributes import frozen

LONGEST_WAIT_MS = 600_000
WAIT_MS = 30_000
START_SECONDS = 30.0

_GONE, _NOT_NOW = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
_LATE = HTTPStatus.GATEWAY_TIMEOUT

# -- nodes


async def _nodes(request: ControlRequest) -> Any:
    nodes = request.cluster.nodes()
    controllers = [_node(each) for each in nodes if "controller" in each.roles]
    brokers = [_node(each) for each in nodes if "broker" in each.roles]
    return {"controller": controllers[0], "controllers": controllers, "brokers": brokers}


def _node(node: NodeSummary) -> Any:
    return {"id": node.id, "status": node.status.value, "address": node.address}


@frozen
class _Kind:
    """A kind of nodes that operations act on."""

    kind: str
    name: str
    """The last part of the operations' names."""
    path: str
    parameter: Parameter | None = None
    """The id in the path; a single controller needs none."""

    def node(self, request: ControlRequest) -> NodeSummary:
        """Return the node that a request names, as it is now."""
        nodes = {node.id: node for node in request.cluster.nodes() if self.kind in node.roles}
        if self.parameter is None:
            if len(nodes) > 1:
                raise NotThereError(
                    f"there are several controllers: {_ids(nodes)}; name one of them"
                )
            return next(iter(nodes.values()))
        field = self.parameter.name
        node_id = request.number(field, request.path[field], least=self.parameter.schema["minimum"])
        if node_id not in nodes:
            raise NotThereError(
                f"{field}: there is no {self.kind} {node_id}; there are {_ids(nodes)}"
            )
        return nodes[node_id]


def _ids(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes))


Act: TypeAlias = Callable[[AnyCluster, int], Awaitable[None]]


def _on_node(act: Act, kind: _Kind) -> Callable[[ControlRequest], Awaitable[Any]]:
    async def do(request: ControlRequest) -> Any:
        await act(request.cluster, kind.node(request).id)
        return _node(kind.node(request))

    return do


async def _start(cluster: AnyCluster, node_id: int) -> None:
    await cluster.start_node(node_id, timeout_seconds=START_SECONDS)


_ACTS: Sequence[tuple[str, str, Act]] = (
    ("kill", "End the node at once, as SIGKILL does.", lambda c, n: c.kill_node(n)),
    ("stop", "Shut the node down in good order, as SIGTERM does.", lambda c, n: c.stop_node(n)),
    ("start", "Start the node with its data; the response comes when it serves.", _start),
    ("freeze", "Stop the node without ending it, as SIGSTOP does.", lambda c, n: c.freeze_node(n)),
    (
        "thaw",
        "Let a frozen node go on, as SIGCONT does; overdue timers expire at once.",
        lambda c, n: c.thaw_node(n),
    ),
)
_BROKER = _Kind(
    "broker",
    "Broker",
    "brokers/{broker_id}",
    Parameter(
        name="broker_id",
        schema={"type": "integer", "minimum": 1},
        description="The id of a broker; the first is 1.",
    ),
)
_KINDS = (
    _BROKER,
    _Kind("controller", "Controller", "controller"),
    _Kind(
        "controller",
        "OneController",
        "controllers/{controller_id}",
        Parameter(
            name="controller_id",
            schema={"type": "integer", "minimum": 0},
            description="The id of a controller; a single one is 0, the first of several is 3001.",
        ),
    ),
)


def _node_operations() -> list[ControlOperation]:
    return [
        ControlOperation(
            name=f"{word}{kind.name}",
            method="POST",
            path=f"/control/{kind.path}/{word}",
            summary=summary,
            do=_on_node(act, kind),
            answer=reference("Node"),
            path_parameters=() if kind.parameter is None else (kind.parameter,),
            refusals=(_GONE, _NOT_NOW),
        )
        for kind in _KINDS
        for word, summary, act in _ACTS
    ]


# -- the network


async def _network(request: ControlRequest) -> Any:
    cuts = request.cluster.cuts()
    return {"cuts": [{"from": source, "to": target} for source, target in cuts]}


async def _cut(request: ControlRequest) -> Any:
    some = _node_ids(request, "nodes")
    others = None if request.body.get("others") is None else _node_ids(request, "others")
    one_way = request.body.get("one_way", False)
    if not isinstance(one_way, bool):
        raise FieldError("one_way", f"{one_way!r} is neither true nor false")
    if others is not None and (both := set(some) & set(others)):
        raise FieldError("others", f"{min(both)} is also among the nodes")
    await request.cluster.cut(some, others, one_way=one_way)
    return await _network(request)


def _node_ids(request: ControlRequest, field: str) -> list[int]:
    given = request.body.get(field)
    known = [node.id for node in request.cluster.nodes()]
    if not isinstance(given, list) or not given:
        raise FieldError(field, "expected a list of node ids, such as [1]")
    for each in given:
        if not isinstance(each, int) or isinstance(each, bool) or each not in known:
            raise FieldError(
                field, f"{each!r} is not a node; the nodes are {', '.join(map(str, known))}"
            )
    return given


async def _heal(request: ControlRequest) -> Any:
    await request.cluster.heal()
    return await _network(request)


# -- topics


async def _topics(request: ControlRequest) -> Any:
    topics = await request.cluster.topics()
    return {"topics": [_topic(name, each) for name, each in topics.items()]}


async def _one_topic(request: ControlRequest) -> Any:
    name, topics = request.path["topic"], await request.cluster.topics()
    if name not in topics:
        raise NotThereError(f"topic: there is no {name!r}")
    return _topic(name, topics[name])


def _topic(name: str, partitions: Sequence[PartitionSummary]) -> Any:
    return {"name": name, "partitions": [*map(attrs.asdict, partitions)]}


# -- fault rules


async def _rules(request: ControlRequest) -> Any:
    return {"rules": [_added(each) for each in request.cluster.faults.rules.values()]}


async def _add(request: ControlRequest) -> Any:
    return _added(await request.cluster.add_fault(rule_from_json(request.body)))


async def _one_rule(request: ControlRequest) -> Any:
    return _added(_rule(request))


async def _hits(request: ControlRequest) -> Any:
    return {"hits": [hit_to_json(each) for each in _rule(request).observed]}


async def _wait(request: ControlRequest) -> Any:
    rule = _rule(request)
    hits = request.number("hits", request.query.get("hits"), least=0, default=1)
    wait_ms = request.number(
        "timeout_ms", request.query.get("timeout_ms"), least=0, default=WAIT_MS
    )
    if wait_ms > LONGEST_WAIT_MS:
        raise FieldError("timeout_ms", f"{wait_ms} is more than {LONGEST_WAIT_MS}")
    await request.cluster.faults.wait_for_hits(rule, hits, timeout=wait_ms / 1000)
    return _added(rule)


async def _remove(request: ControlRequest) -> None:
    await request.cluster.remove_fault(_rule(request))


async def _clear(request: ControlRequest) -> None:
    await request.cluster.clear_faults()


def _rule(request: ControlRequest) -> AddedRule:
    number = request.number("number", request.path["number"], least=1)
    rule = request.cluster.faults.rules.get(number)
    if rule is None:
        raise NotThereError(f"number: there is no rule {number}")
    return rule


def _added(added: AddedRule) -> Any:
    return {
        "number": added.number,
        "rule": rule_to_json(added.rule),
        "calls": added.calls,
        "hits": added.hits,
    }


# -- all of it


async def _reset(request: ControlRequest) -> Any:
    await request.cluster.make_whole()
    return await _nodes(request)


def _with_description(operations: Sequence[ControlOperation]) -> list[ControlOperation]:
    """Return the operations, and the one that describes them all."""

    async def description(_: ControlRequest) -> Any:
        return description_of(described)

    describe = ControlOperation(
        name="describe",
        method="GET",
        path="/openapi.json",
        summary="Return this description.",
        do=description,
        answer={"type": "object"},
    )
    described = [describe, *operations]
    return described


_NODES = record(
    {
        "controller": reference("Node"),
        "controllers": listed("Node"),
        "brokers": listed("Node"),
    }
)
_CUTS = record({"cuts": listed("Cut")})
_NUMBER = Parameter(name="number", schema={"type": "integer", "minimum": 1})
_WAITING = (
    Parameter(name="hits", schema={"type": "integer", "minimum": 0, "default": 1}),
    Parameter(
        name="timeout_ms",
        schema={"type": "integer", "minimum": 0, "maximum": LONGEST_WAIT_MS, "default": WAIT_MS},
    ),
)

_FAULTS = (
    ControlOperation(
        name="listFaults",
        method="GET",
        path="/control/faults",
        summary="List the fault rules in force, the oldest first.",
        do=_rules,
        answer=record({"rules": listed("AddedRule")}),
    ),
    ControlOperation(
        name="addFault",
        method="POST",
        path="/control/faults",
        summary="Add a fault rule, which is in force from now on.",
        do=_add,
        body=reference("FaultRule"),
        answer=reference("AddedRule"),
        status=HTTPStatus.CREATED,
        refusals=(_LATE,),
    ),
    ControlOperation(
        name="removeFaults",
        method="DELETE",
        path="/control/faults",
        summary="Remove every fault rule.",
        do=_clear,
        refusals=(_LATE,),
    ),
    ControlOperation(
        name="showFault",
        method="GET",
        path="/control/faults/{number}",
        summary="Return one fault rule, with its counts.",
        do=_one_rule,
        answer=reference("AddedRule"),
        path_parameters=(_NUMBER,),
        refusals=(_GONE,),
    ),
    ControlOperation(
        name="removeFault",
        method="DELETE",
        path="/control/faults/{number}",
        summary="Remove one fault rule; requests that it holds go on.",
        do=_remove,
        path_parameters=(_NUMBER,),
        refusals=(_GONE, _LATE),
    ),
    ControlOperation(
        name="listHits",
        method="GET",
        path="/control/faults/{number}/hits",
        summary="List the last thousand requests that the rule was applied to.",
        do=_hits,
        answer=record({"hits": listed("Hit")}),
        path_parameters=(_NUMBER,),
        refusals=(_GONE,),
    ),
    ControlOperation(
        name="waitForHits",
        method="GET",
        path="/control/faults/{number}/wait",
        summary="Wait until the rule was applied to this many requests.",
        do=_wait,
        answer=reference("AddedRule"),
        path_parameters=(_NUMBER,),
        query=_WAITING,
        refusals=(_GONE, _LATE),
    ),
)
OPERATIONS: Sequence[ControlOperation] = _with_description(
    [
        ControlOperation(
            name="listBrokers",
            method="GET",
            path="/control/brokers",
            summary="List the controllers and the brokers, with their states.",
            do=_nodes,
            answer=_NODES,
        ),
        *_node_operations(),
        ControlOperation(
            name="showNetwork",
            method="GET",
            path="/control/network",
            summary="List the cuts of the network: pairs of nodes of which the first does not reach the second.",
            do=_network,
            answer=_CUTS,
        ),
        ControlOperation(
            name="cutNetwork",
            method="POST",
            path="/control/network/cut",
            summary="Cut the network between nodes; clients still reach every node.",
            do=_cut,
            body=reference("CutRequest"),
            answer=_CUTS,
            refusals=(_LATE,),
        ),
        ControlOperation(
            name="healNetwork",
            method="POST",
            path="/control/network/heal",
            summary="Heal every cut; what was sent meanwhile arrives.",
            do=_heal,
            answer=_CUTS,
            refusals=(_LATE,),
        ),
        ControlOperation(
            name="listTopics",
            method="GET",
            path="/control/topics",
            summary="List every topic, with the leaders, replicas and ISRs of its partitions.",
            do=_topics,
            answer=record({"topics": listed("Topic")}),
            refusals=(_NOT_NOW,),
        ),
        ControlOperation(
            name="showTopic",
            method="GET",
            path="/control/topics/{topic}",
            summary="Return one topic.",
            do=_one_topic,
            answer=reference("Topic"),
            path_parameters=(Parameter(name="topic", schema={"type": "string"}),),
            refusals=(_GONE, _NOT_NOW),
        ),
        *_FAULTS,
        ControlOperation(
            name="reset",
            method="POST",
            path="/control/reset",
            summary="Start and thaw every node, heal the network and remove every fault rule; topics stay.",
            do=_reset,
            answer=_NODES,
            refusals=(_NOT_NOW, _LATE),
        ),
    ]
)
FAULT_OPERATIONS: Sequence[ControlOperation] = _with_description(_FAULTS)


def control_routes(cluster: AnyCluster) -> list[BaseRoute]:
    """Return the routes of every operation on `cluster`, and of their description."""
    return [operation.route(cluster) for operation in OPERATIONS]


def fault_routes(faulty: FaultControl) -> list[BaseRoute]:
    """Return the routes of the operations on fault rules alone, and of their description."""
    # They use nothing else of the cluster that a request names.
    cluster = cast("AnyCluster", faulty)
    return [operation.route(cluster) for operation in FAULT_OPERATIONS]
