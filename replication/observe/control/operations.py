"""Every operation there is."""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, TypeAlias

from starlette.routing import BaseRoute

from replication.broker.nodes import CONTROLLER_ID
from replication.cluster.interface import AnyCluster, NodeSummary, PartitionSummary
from replication.faults import AddedRule
from replication.faults.rules.words import hit_words, rule_of, words_of
from replication.observe.control.declared import (
    Asked,
    FieldError,
    NotThereError,
    Operation,
    Parameter,
)
from replication.observe.control.description import described
from replication.observe.control.schemas import listed, record, reference

LONGEST_WAIT_MS = 600_000
WAIT_MS = 30_000
START_SECONDS = 30.0

_GONE, _NOT_NOW = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
_LATE = HTTPStatus.GATEWAY_TIMEOUT

# -- nodes


async def _nodes(asked: Asked) -> Any:
    controller, *brokers = asked.cluster.nodes()
    return {"controller": _node(controller), "brokers": [_node(each) for each in brokers]}


def _node(node: NodeSummary) -> Any:
    return {"id": node.id, "status": node.status.value, "address": node.address}


def _found(cluster: AnyCluster, node_id: int) -> NodeSummary:
    nodes = {node.id: node for node in cluster.nodes()}
    if node_id not in nodes:
        known = ", ".join(str(each) for each in nodes if each != CONTROLLER_ID)
        raise NotThereError(f"broker_id: there is no broker {node_id}; there are {known}")
    return nodes[node_id]


Act: TypeAlias = Callable[[AnyCluster, int], Awaitable[None]]


def _on_node(act: Act, *, controller: bool) -> Callable[[Asked], Awaitable[Any]]:
    async def do(asked: Asked) -> Any:
        node_id = CONTROLLER_ID
        if not controller:
            node_id = asked.number("broker_id", asked.path["broker_id"], least=1)
        _found(asked.cluster, node_id)
        await act(asked.cluster, node_id)
        return _node(_found(asked.cluster, node_id))

    return do


async def _start(cluster: AnyCluster, node_id: int) -> None:
    await cluster.start_node(node_id, timeout_seconds=START_SECONDS)


_ACTS: Sequence[tuple[str, str, Act]] = (
    ("kill", "SIGKILL: nothing is written any more, nobody is told.", lambda c, n: c.kill_node(n)),
    ("stop", "SIGTERM: it leaves in good order.", lambda c, n: c.stop_node(n)),
    ("start", "Again, where it was; answered when it serves.", _start),
    ("freeze", "SIGSTOP: there, and silent.", lambda c, n: c.freeze_node(n)),
    (
        "thaw",
        "SIGCONT: all that fell due meanwhile falls due at once.",
        lambda c, n: c.thaw_node(n),
    ),
)
_BROKER_ID = Parameter(
    name="broker_id", schema={"type": "integer", "minimum": 1}, description="From 1 on."
)


def _node_operations() -> list[Operation]:
    return [
        Operation(
            name=f"{word}{'Controller' if controller else 'Broker'}",
            method="POST",
            path=f"/control/{'controller' if controller else 'brokers/{broker_id}'}/{word}",
            summary=summary,
            do=_on_node(act, controller=controller),
            answer=reference("Node"),
            path_parameters=() if controller else (_BROKER_ID,),
            refusals=(_NOT_NOW,) if controller else (_GONE, _NOT_NOW),
        )
        for controller in (False, True)
        for word, summary, act in _ACTS
    ]


# -- the network


async def _network(asked: Asked) -> Any:
    cuts = asked.cluster.cuts()
    return {"cuts": [{"from": source, "to": target} for source, target in cuts]}


async def _cut(asked: Asked) -> Any:
    some = _node_ids(asked, "nodes")
    others = None if asked.body.get("others") is None else _node_ids(asked, "others")
    one_way = asked.body.get("one_way", False)
    if not isinstance(one_way, bool):
        raise FieldError("one_way", f"{one_way!r} is neither true nor false")
    if others is not None and (both := set(some) & set(others)):
        raise FieldError("others", f"{min(both)} is among the nodes, and is not cut off itself")
    await asked.cluster.cut(some, others, one_way=one_way)
    return await _network(asked)


def _node_ids(asked: Asked, field: str) -> list[int]:
    given = asked.body.get(field)
    known = [node.id for node in asked.cluster.nodes()]
    if not isinstance(given, list) or not given:
        raise FieldError(field, "a list of node ids is needed: [1]")
    for each in given:
        if not isinstance(each, int) or isinstance(each, bool) or each not in known:
            raise FieldError(field, f"{each!r} is no node; {', '.join(map(str, known))} are")
    return given


async def _heal(asked: Asked) -> Any:
    await asked.cluster.heal()
    return await _network(asked)


# -- topics


async def _topics(asked: Asked) -> Any:
    topics = await asked.cluster.topics()
    return {"topics": [_topic(name, each) for name, each in topics.items()]}


async def _one_topic(asked: Asked) -> Any:
    name, topics = asked.path["topic"], await asked.cluster.topics()
    if name not in topics:
        raise NotThereError(f"topic: there is no {name!r}")
    return _topic(name, topics[name])


def _topic(name: str, partitions: Sequence[PartitionSummary]) -> Any:
    return {
        "name": name,
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
            }
            for each in partitions
        ],
    }


# -- fault rules


async def _rules(asked: Asked) -> Any:
    return {"rules": [_added(each) for each in asked.cluster.faults.rules.values()]}


async def _add(asked: Asked) -> Any:
    return _added(await asked.cluster.add_fault(rule_of(asked.body)))


async def _one_rule(asked: Asked) -> Any:
    return _added(_rule(asked))


async def _hits(asked: Asked) -> Any:
    return {"hits": [hit_words(each) for each in _rule(asked).observed]}


async def _wait(asked: Asked) -> Any:
    rule = _rule(asked)
    hits = asked.number("hits", asked.query.get("hits"), least=0, default=1)
    wait_ms = asked.number("timeout_ms", asked.query.get("timeout_ms"), least=0, default=WAIT_MS)
    if wait_ms > LONGEST_WAIT_MS:
        raise FieldError("timeout_ms", f"{wait_ms} is more than {LONGEST_WAIT_MS}")
    await asked.cluster.faults.wait_for_hits(rule, hits, timeout=wait_ms / 1000)
    return _added(rule)


async def _remove(asked: Asked) -> None:
    await asked.cluster.remove_fault(_rule(asked))


async def _clear(asked: Asked) -> None:
    await asked.cluster.clear_faults()


def _rule(asked: Asked) -> AddedRule:
    number = asked.number("number", asked.path["number"], least=1)
    rule = asked.cluster.faults.rules.get(number)
    if rule is None:
        raise NotThereError(f"number: there is no rule {number}")
    return rule


def _added(added: AddedRule) -> Any:
    return {
        "number": added.number,
        "rule": words_of(added.rule),
        "calls": added.calls,
        "hits": added.hits,
    }


# -- all of it


async def _reset(asked: Asked) -> Any:
    await asked.cluster.make_whole()
    return await _nodes(asked)


async def _description(_: Asked) -> Any:
    return described(OPERATIONS)


_NODES = record({"controller": reference("Node"), "brokers": listed("Node")})
_CUTS = record({"cuts": listed("Cut")})
_NUMBER = Parameter(name="number", schema={"type": "integer", "minimum": 1})
_WAITING = (
    Parameter(name="hits", schema={"type": "integer", "minimum": 0, "default": 1}),
    Parameter(
        name="timeout_ms",
        schema={"type": "integer", "minimum": 0, "maximum": LONGEST_WAIT_MS, "default": WAIT_MS},
    ),
)

OPERATIONS: Sequence[Operation] = (
    Operation(
        name="describe",
        method="GET",
        path="/openapi.json",
        summary="This description.",
        do=_description,
        answer={"type": "object"},
    ),
    Operation(
        name="listBrokers",
        method="GET",
        path="/control/brokers",
        summary="Who there is, and in which state.",
        do=_nodes,
        answer=_NODES,
    ),
    *_node_operations(),
    Operation(
        name="showNetwork",
        method="GET",
        path="/control/network",
        summary="What is cut: from whom nothing reaches whom.",
        do=_network,
        answer=_CUTS,
    ),
    Operation(
        name="cutNetwork",
        method="POST",
        path="/control/network/cut",
        summary="Between nodes; clients still reach everybody.",
        do=_cut,
        body=reference("CutRequest"),
        answer=_CUTS,
        refusals=(_LATE,),
    ),
    Operation(
        name="healNetwork",
        method="POST",
        path="/control/network/heal",
        summary="Every cut; what was sent meanwhile arrives.",
        do=_heal,
        answer=_CUTS,
        refusals=(_LATE,),
    ),
    Operation(
        name="listTopics",
        method="GET",
        path="/control/topics",
        summary="Every topic, with who leads its partitions.",
        do=_topics,
        answer=record({"topics": listed("Topic")}),
        refusals=(_NOT_NOW,),
    ),
    Operation(
        name="showTopic",
        method="GET",
        path="/control/topics/{topic}",
        summary="One of them.",
        do=_one_topic,
        answer=reference("Topic"),
        path_parameters=(Parameter(name="topic", schema={"type": "string"}),),
        refusals=(_GONE, _NOT_NOW),
    ),
    Operation(
        name="listFaults",
        method="GET",
        path="/control/faults",
        summary="The fault rules in force, the oldest first.",
        do=_rules,
        answer=record({"rules": listed("AddedRule")}),
    ),
    Operation(
        name="addFault",
        method="POST",
        path="/control/faults",
        summary="A fault rule, in force from now on.",
        do=_add,
        body=reference("FaultRule"),
        answer=reference("AddedRule"),
        status=HTTPStatus.CREATED,
        refusals=(_LATE,),
    ),
    Operation(
        name="removeFaults",
        method="DELETE",
        path="/control/faults",
        summary="All of them.",
        do=_clear,
        refusals=(_LATE,),
    ),
    Operation(
        name="showFault",
        method="GET",
        path="/control/faults/{number}",
        summary="One of them.",
        do=_one_rule,
        answer=reference("AddedRule"),
        path_parameters=(_NUMBER,),
        refusals=(_GONE,),
    ),
    Operation(
        name="removeFault",
        method="DELETE",
        path="/control/faults/{number}",
        summary="Whom it holds is let go.",
        do=_remove,
        path_parameters=(_NUMBER,),
        refusals=(_GONE, _LATE),
    ),
    Operation(
        name="listHits",
        method="GET",
        path="/control/faults/{number}/hits",
        summary="The last thousand requests that it was applied to.",
        do=_hits,
        answer=record({"hits": listed("Hit")}),
        path_parameters=(_NUMBER,),
        refusals=(_GONE,),
    ),
    Operation(
        name="waitForHits",
        method="GET",
        path="/control/faults/{number}/wait",
        summary="Answered when it was applied so often in all.",
        do=_wait,
        answer=reference("AddedRule"),
        path_parameters=(_NUMBER,),
        query=_WAITING,
        refusals=(_GONE, _LATE),
    ),
    Operation(
        name="reset",
        method="POST",
        path="/control/reset",
        summary="Everybody up, thawed and connected, no fault rules; topics stay.",
        do=_reset,
        answer=_NODES,
        refusals=(_NOT_NOW, _LATE),
    ),
)


def control_routes(cluster: AnyCluster) -> list[BaseRoute]:
    """Return the routes of every operation on `cluster`, and of their description."""
    return [operation.route(cluster) for operation in OPERATIONS]
