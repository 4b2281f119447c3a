"""The administrative commands of a story.

alter t retention.ms=60000      set a key of a topic; or of a broker: alter b1
delete-topic t
remake t replicas=b1,b2         delete a topic, and create it again on these brokers
delete-records t-0 5            delete the records before 5; `all` for all that is committed
grow t 2 b2,b3                  add a second partition on these brokers; `&` as in `start b1 &`
reassign t-0 b2,b3              move it there; `back` cancels a move
elect t-0 preferred             or unclean
offsets t-0                     its first and last offset, as a consumer receives them
finalize kraft.version=1        finalize the level of a feature
quorum                          who leads the controllers, who votes, and who observes
add-voter c3003                 let a controller that observes vote (KIP-853); or remove-voter

Any broker forwards a request to the controller, except `alter b1`, which b1 has to approve of and
forwards. The leader of the partition answers `delete-records` and `offsets`.

Each command sends one request, once, and its answer is what the broker said: our own admin client
would ask again where that may help (`replication.client.admin`).
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from replication.config import ConfigOperation
from replication.errors import ErrorCode, PeerUnavailableError
from replication.net.rpc import RpcClient
from replication.raft.rules.voters import to_wire
from replication.wire.add_raft_voter import AddRaftVoterRequest
from replication.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from replication.wire.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from replication.wire.delete_records import (
    HIGH_WATERMARK,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.describe_quorum import (
    QUORUM_TOPIC,
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from replication.wire.elect_leaders import PREFERRED, UNCLEAN, ElectionTopic, ElectLeadersRequest
from replication.wire.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from replication.wire.list_offsets import EARLIEST, LATEST
from replication.wire.remove_raft_voter import RemoveRaftVoterRequest
from replication.wire.update_features import FeatureUpdate, UpdateFeaturesRequest
from scenarios.story.arguments import (
    Options,
    Words,
    background,
    broker_id_of,
    exactly,
    nodes,
    number_of,
    partition_of,
    refuse_any,
    replicas_of,
)
from scenarios.story.client_stage import ClientStage
from scenarios.story.script import ScriptError
from scenarios.story.stage import Stage
from scenarios.world.client import PATIENCE_MS, Address, closing
from scenarios.world.cluster import BROKER_PORT, node_id_of
from scenarios.world.probes import DELETE_RECORDS_VERSION
from storage.types import Offset, TopicId, TopicPartition

ALTER_CONFIGS_VERSION = 1
CREATE_PARTITIONS_VERSION = 3
DELETE_TOPICS_VERSION = 6
REASSIGN_VERSION = 1
ELECT_VERSION = 2
UPDATE_FEATURES_VERSION = 1
DESCRIBE_QUORUM_VERSION = 2
ADD_VOTER_VERSION = 0
REMOVE_VOTER_VERSION = 0
# An administrator waits less long for the controller than a story does for its records.
ADMIN_PATIENCE_MS = 2_000
_ELECTIONS = {"preferred": PREFERRED, "unclean": UNCLEAN}


async def alter(stage: ClientStage, words: Words, options: Options) -> list[str]:
    (name,) = exactly(words, 1)
    if not options:
        raise ScriptError("alter TOPIC|BROKER KEY=VALUE...")
    kind, among = ConfigResourceType.TOPIC, list[Address]()
    if name in stage.cluster.broker_names:
        kind, among = ConfigResourceType.BROKER, [(name, BROKER_PORT)]
        name = str(broker_id_of(stage, name))
    elif any(key.startswith("retention.") for key in options):
        stage.trimmed.add(name)
    resource = IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)
            for key, value in options.items()
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

    accounts = stage.requests
    of_topic = options if kind is ConfigResourceType.TOPIC else {}

    def asked() -> None:
        for key, value in of_topic.items():
            accounts.asked(name, key, value)

    async def ask() -> ErrorCode:
        response = await _ask(stage, request, ALTER_CONFIGS_VERSION, among=among, asked=asked)
        error = ErrorCode.of(response.responses[0].error_code)
        if error is ErrorCode.NONE:
            for key, value in of_topic.items():
                accounts.answered(name, key, value)
            stage.judge_answered()
        return error

    return await _answer(ask())


async def delete_topic(stage: ClientStage, words: Words, options: Options) -> list[str]:
    (topic,) = exactly(words, 1, options)
    stage.deleted[topic] = stage.cluster.clock.now()
    stage.requests.deleted(topic)
    return _refusal(await _delete_topic(stage, topic))


async def _delete_topic(stage: ClientStage, topic: str) -> ErrorCode:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=PATIENCE_MS)
    response = await _ask(stage, request, DELETE_TOPICS_VERSION, timeout_ms=PATIENCE_MS)
    return ErrorCode.of(response.responses[0].error_code)


async def remake(stage: Stage, words: Words, options: Options) -> list[str]:
    """Delete a topic and create it again; ask as often as needed, until every running broker knows
    it.
    """
    (topic,) = exactly(words, 1)
    replicas = replicas_of(stage, options)
    refuse_any([], options)
    cluster = stage.cluster
    was = cluster.image.topic_id(topic)
    stage.deleted[topic] = cluster.clock.now()
    stage.requests.deleted(topic)

    def known() -> set[TopicId | None]:
        return {each.metadata.image.topic_id(topic) for each in cluster.brokers.values()}

    await stage.repeat_until(
        partial(_delete_topic, stage, topic),
        until=lambda: cluster.image.topic_id(topic) != was,
    )
    await stage.repeat_until(
        partial(stage.client.create_topic, topic, replicas),
        until=lambda: cluster.image.topic_id(topic) is not None,
    )
    await cluster.until(lambda: known().isdisjoint({was, None}), what=f"all know the new {topic}")
    stage.made_again(topic)
    return [f"{topic} is another topic"]


async def delete_records(stage: ClientStage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    where, before = exactly(words, 2, options)
    partition = partition_of(where)
    stage.trimmed.add(partition.topic)
    ask = partial(
        _delete_records, stage, partition, HIGH_WATERMARK if before == "all" else number_of(before)
    )
    if in_background:
        stage.ask_in_background(ask)
        return []
    answer = await ask()
    error = ErrorCode.of(answer.error_code)
    return _refusal(error) or [f"{where}: low watermark {answer.low_watermark}"]


async def _delete_records(
    stage: ClientStage, partition: TopicPartition, offset: Offset
) -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=partition.topic, partitions=[wanted])],
        timeout_ms=PATIENCE_MS,
    )
    async with closing(await stage.client.connect_to_leader(partition)) as rpc:
        response = await rpc.call(request, version=DELETE_RECORDS_VERSION, timeout_ms=PATIENCE_MS)
    answer: DeleteRecordsPartitionResult = response.topics[0].partitions[0]
    return answer


async def grow(stage: ClientStage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    topic, count, brokers = exactly(words, 3, options)
    replicas = [broker_id_of(stage, name) for name in brokers.split(",")]
    wanted = CreatePartitionsTopic(
        name=topic,
        count=number_of(count),
        assignments=[CreatePartitionsAssignment(broker_ids=replicas)],
    )
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=ADMIN_PATIENCE_MS)

    requests = stage.requests

    async def ask() -> ErrorCode:
        deletions = requests.deletions(topic)
        response = await _ask(stage, request, CREATE_PARTITIONS_VERSION)
        error = ErrorCode.of(response.results[0].error_code)
        if error is ErrorCode.NONE:
            requests.grown(topic, wanted.count, deletions=deletions)
            stage.judge_answered()
        return error

    if in_background:
        stage.ask_in_background(ask)
        return []
    return await _answer(ask())


async def reassign(stage: ClientStage, words: Words, options: Options) -> list[str]:
    where, brokers = exactly(words, 2, options)
    back = brokers == "back"
    replicas = None if back else [broker_id_of(stage, name) for name in brokers.split(",")]
    topic, number = partition_of(where)
    wanted = ReassignablePartition(partition_index=number, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=ADMIN_PATIENCE_MS,
        topics=[ReassignableTopic(name=topic, partitions=[wanted])],
    )

    async def ask() -> ErrorCode:
        response = await _ask(stage, request, REASSIGN_VERSION)
        if response.error_code != ErrorCode.NONE:
            return ErrorCode.of(response.error_code)
        return ErrorCode.of(response.responses[0].partitions[0].error_code)

    return await _answer(ask())


async def elect(stage: ClientStage, words: Words, options: Options) -> list[str]:
    where, kind = exactly(words, 2, options)
    if kind not in _ELECTIONS:
        raise ScriptError(f"elect PARTITION {' or '.join(_ELECTIONS)}")
    partition = partition_of(where)
    if kind == "unclean":
        stage.requests_unclean(partition)
    wanted = ElectionTopic(topic=partition.topic, partitions=[partition.partition])
    request = ElectLeadersRequest(
        election_type=_ELECTIONS[kind], topic_partitions=[wanted], timeout_ms=ADMIN_PATIENCE_MS
    )

    async def ask() -> ErrorCode:
        response = await _ask(stage, request, ELECT_VERSION)
        if response.error_code != ErrorCode.NONE:
            return ErrorCode.of(response.error_code)
        return ErrorCode.of(response.replica_election_results[0].partition_result[0].error_code)

    return await _answer(ask())


async def offsets(stage: ClientStage, words: Words, options: Options) -> list[str]:
    (where,) = exactly(words, 1, options)
    found = []
    for name, timestamp in (("begins at", EARLIEST), ("ends at", LATEST)):
        error, offset = await stage.client.list_offset(partition_of(where), timestamp)
        found.append(f"{name} {error.name if error else offset}")
    return [f"{where}: {', '.join(found)}"]


async def finalize(stage: ClientStage, words: Words, options: Options) -> list[str]:
    refuse_any(words)
    updates = [
        FeatureUpdate(feature=name, max_version_level=number_of(level))
        for name, level in options.items()
    ]

    async def ask() -> ErrorCode:
        request = UpdateFeaturesRequest(feature_updates=updates)
        return ErrorCode.of((await _ask(stage, request, UPDATE_FEATURES_VERSION)).error_code)

    return await _answer(ask())


async def quorum(stage: ClientStage, words: Words, options: Options) -> list[str]:
    """Show the quorum as its leader describes it: an observer may be a controller, too."""
    refuse_any(words, options)
    topics = [QuorumTopic(topic_name=QUORUM_TOPIC, partitions=[QuorumPartition()])]
    response = await _ask(stage, DescribeQuorumRequest(topics=topics), DESCRIBE_QUORUM_VERSION)
    (found,) = response.topics[0].partitions
    names = {node_id_of(name): name for name in stage.cluster.names}
    voters, observers = (
        " ".join(names[each.replica_id] for each in replicas)
        for replicas in (found.current_voters, found.observers)
    )
    leads = f"{names[found.leader_id]} leads in epoch {found.leader_epoch}"
    return [f"{leads}, voters {voters}, observers {observers}"]


async def add_voter(stage: Stage, words: Words, options: Options) -> list[str]:
    (name,) = nodes(stage, exactly(words, 1, options), {})
    running = stage.cluster.nodes.controllers.get(node_id_of(name))
    if running is None:
        raise ScriptError(f"{name} is down: its directory is not known")
    me = running.node.quorum
    request = AddRaftVoterRequest(
        cluster_id=me.cluster_id,
        timeout_ms=ADMIN_PATIENCE_MS,
        voter_id=me.me.id,
        voter_directory_id=me.me.directory_id,
        listeners=to_wire(me.endpoints),
    )
    return await _change_voters(stage, request, ADD_VOTER_VERSION)


async def remove_voter(stage: Stage, words: Words, options: Options) -> list[str]:
    """Remove the voter of this id, on whichever disk it was."""
    (name,) = nodes(stage, exactly(words, 1, options), {})
    leader = stage.cluster.controller
    voter = None if leader is None else leader.node.quorum.voters.node(node_id_of(name))
    if leader is None or voter is None:
        raise ScriptError(f"{name} is no voter of a controller that decides")
    request = RemoveRaftVoterRequest(
        cluster_id=leader.cluster_id,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
    )
    return await _change_voters(stage, request, REMOVE_VOTER_VERSION)


async def _change_voters(stage: Stage, request: object, version: int) -> list[str]:
    async def ask() -> ErrorCode:
        return ErrorCode.of((await _ask(stage, request, version)).error_code)

    return await _answer(ask())


async def _ask(
    stage: ClientStage,
    request: object,
    version: int,
    *,
    timeout_ms: int = 2 * ADMIN_PATIENCE_MS,
    among: Sequence[Address] = (),
    asked: Callable[[], None] = lambda: None,
) -> Any:
    """Return the response of the first broker that gives one; call `asked` before each attempt."""

    async def ask(rpc: RpcClient) -> object:
        asked()
        return await rpc.call(request, version=version, timeout_ms=timeout_ms)

    return await stage.client.ask_somebody(ask, among)


async def _answer(asked: Awaitable[ErrorCode]) -> list[str]:
    try:
        return _refusal(await asked)
    except PeerUnavailableError as error:
        return [f"no answer: {error}"]


def _refusal(error: ErrorCode) -> list[str]:
    return [f"refused, {error.name}"] if error else []
