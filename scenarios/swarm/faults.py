"""The fault model of the swarm: one table of all that may happen in a run.

A row has a name, what it needs, the script lines that it draws, and two weights: how often it is
drawn in a long run, and how often in a contest (`scenarios.swarm.settings`), beside the others
that the run has. A run has some rows and not others: where everything may happen at any time,
most of it hides the rest (swarm testing, Groce et al., 2012). A row may also need settings; where
a setting has several values, one is drawn.

The lines are in the words of stories (`scenarios.story.commands.table`), with these additions:

    {leader}            a role that the need has found (`scenarios.swarm.situation`)
    {a|b|b}             one of these, `b` twice as often; `{|b}` is nothing or `b`
    30% LINE            that line in three of ten cases
    2-3x LINE           that line two or three times
    each ROLE: LINE     that line for each name of the role, in any order; `{each}` is the name,
                        `{not each}` every other node
    a; b                two lines, in place of one
    {values}            one to three new values; {soon}, {while}: some time to let pass
    {log end}           the log end offset of the leader's replica
    produce acks=1      a batch of new values to the fault's partition, with any timeout
    lead P first=a,b    elect `a` by another order of the same replicas; `last=c` anybody but `c`

A line that cannot be carried out by then is left out: one that stops a node that is down, or
addresses a client of ours that is gone. So each row is the beginning of many stories, most of
which go otherwise than its name says.

The file is long because it is one table.
"""

from collections.abc import Mapping

import attrs

from scenarios.story.expected_records import OFFSETS, TRANSACTIONS
from scenarios.swarm import situation as need
from scenarios.swarm.situation import Need
from scenarios.world.throttle_probe import RATE

FETCH_VERSION = "understudy.inter.broker.fetch.version"
CHECKED_SOON = {"log.retention.check.interval.ms": (300, 1000), "log.initial.task.delay.ms": (300,)}
"""Kafka looks every five minutes for what has to be deleted; a run hardly lasts as long."""

EXPIRES_SOON = (
    "producer.id.expiration.ms=3000 producer.id.expiration.check.interval.ms=500"
    " transactional.id.expiration.ms=4000"
    " transaction.remove.expired.transaction.cleanup.interval.ms=1000"
)

GIVES_UP_SOON = (
    "offsets.commit.timeout.ms=100"
    " group.consumer.min.session.timeout.ms=1000 group.consumer.session.timeout.ms=2000"
    " group.consumer.min.heartbeat.interval.ms=100 group.consumer.heartbeat.interval.ms=500"
)


def _coordinates_with(settings: str, topic: str) -> str:
    """Return the lines that give the coordinator of a topic other settings, with which it coordinates."""
    return (
        f"stop {{coordinator}}; configure {{coordinator}} {settings}; start {{coordinator}};"
        f" wait whole {topic}-0; reassign {topic}-0 {{coordinator first}}; elect {topic}-0 preferred"
    )


@attrs.frozen(eq=False)
class FaultKind:
    """A kind of thing that may happen in a run, and the lines of script that make it happen."""

    name: str
    needs: Need
    lines: str
    weight: tuple[float, float]
    """In a long run, and in a contest; 0 where it is never drawn."""
    settings: Mapping[str, tuple[object, ...]] = attrs.field(factory=dict, kw_only=True)
    always: bool = attrs.field(default=False, kw_only=True)
    """Whether every run has it."""


EPOCHS: Mapping[str, tuple[object, ...]] = {
    FETCH_VERSION: (11, 11, 17),
    "replica.fetch.backoff.ms": (50, 200),
    "partitions": (2,),
}
"""A fetcher of several partitions outlives the change of one."""

ANY_API = "{FETCH|ALTER_PARTITION|BROKER_HEARTBEAT|BROKER_REGISTRATION|PRODUCE} after={0|0|1|2|5}"
CLIENT_API = (
    "{PRODUCE|FETCH|METADATA|JOIN_GROUP|SYNC_GROUP|HEARTBEAT|OFFSET_COMMIT|INIT_PRODUCER_ID"
    "|ADD_PARTITIONS_TO_TXN|TXN_OFFSET_COMMIT|END_TXN} after={0|0|1|2}"
)

FAULTS = (
    # What clients do.
    FaultKind(
        "produce", need.anything, "produce {partition} {way} {values} &", (10, 6), always=True
    ),
    FaultKind("poll", need.anything, "poll {partition}{rack} &", (6, 1)),
    # Faults that are over.
    FaultKind("start", need.stopped, "start {node} &", (4, 4), always=True),
    FaultKind("resume", need.paused, "resume {node}", (4, 4), always=True),
    FaultKind("heal", need.cut, "heal", (4, 3), always=True),
    # Nodes and links.
    FaultKind("kill", need.running, "kill {node}", (1, 1)),
    FaultKind("kill-controller-asked", need.isr_change_pending, "kill {controller}", (8, 0)),
    FaultKind("power-cut", need.running, "power-cut {node}", (1, 1)),
    FaultKind("stop", need.running, "stop {node} &", (1, 0)),
    FaultKind("pause", need.running, "pause {node}", (1, 2)),
    FaultKind("cut", need.anybody, "cut {node} {other}", (1, 1)),
    FaultKind("mute", need.anybody, "mute {node} {other}", (1, 1)),
    FaultKind("isolate", need.running, "cut {node} {not node}", (1, 0)),
    FaultKind("slow-link", need.anybody, "slow {node} network={1ms|1ms|20ms|100ms|400ms}", (0, 2)),
    FaultKind(
        "slow-disk",
        need.anybody,
        "slow {node} disk={1ms|50ms|500ms} network={1ms|50ms|500ms}",
        (1, 0),
    ),
    FaultKind(
        "hold",
        need.running,
        f"hold {{{{node}} {{other}}|{{other}} {{node}}|{{node}} {{controller}}|{{controller}} {{node}}}} {ANY_API}",
        (1.5, 0),
    ),
    FaultKind("tear", need.running, "tear {node} {other}", (1, 0)),
    # FoundationDB's swizzle: some nodes are cut off one by one, and come back in another order.
    FaultKind(
        "swizzle",
        need.some,
        "each some: cut {each} {not each}; run {while}\n"
        "each some: heal {each} {not each}; run {while}",
        (1, 0),
    ),
    # What operators ask for.
    FaultKind(
        "elect-another", need.led, "lead {partition} last={leader|b1|b2|b3}", (0, 3), always=True
    ),
    FaultKind("elect-preferred", need.anything, "elect {partition} preferred", (2, 0)),
    FaultKind(
        "reassign", need.some_replicas, "reassign {partition} {{some replicas}|back}", (2, 0)
    ),
    FaultKind("add-partition", need.room, "grow {topic} {count} {some replicas} &", (2, 0)),
    FaultKind("minimum-isr", need.anything, "alter {topic} min.insync.replicas={1|2|3}", (2, 0)),
    FaultKind(
        "retention",
        need.anything,
        "alter {topic} {retention.bytes=1|retention.bytes=400|retention.bytes=-1"
        "|retention.ms=1000|retention.ms=-1|segment.bytes=200|segment.ms=1000}",
        (2, 0),
        settings=CHECKED_SOON,
    ),
    FaultKind(
        "flush",
        need.anything,
        "alter {topic} {flush.messages=1|flush.messages=3|flush.ms=100}",
        (2, 0),
    ),
    FaultKind(
        "delete-records",
        need.anything,
        "delete-records {partition} {all|1|2|5} &",
        (2, 0),
    ),
    # Clocks and disks. A producer is not to be forgotten for a clock that jumps: it would write twice.
    FaultKind(
        "clock",
        need.broker,
        "{jump {node} {-600s|-5s|1s|60s|86400s}|drift {node} {0ms|1ms|200ms}}",
        (2, 0),
        settings={"producer.id.expiration.ms": (2**31 - 1,)},
    ),
    FaultKind(
        "disk-fails",
        need.broker,
        "fail {node} {write|sync} names={*|*.log} error={EIO|ENOSPC} skip={0|1|2|3}",
        (1.5, 0),
    ),
    FaultKind("disk-image", need.running, "image {node} of-{node}", (2, 0)),
    FaultKind(
        "disk-replaced", need.stopped_broker, "{wipe {node}|restore {node} of-{node}}", (3, 0)
    ),
    # Disks that are not to be trusted. One disk of a run is: of two, both may have been all there was.
    FaultKind(
        "bit-rot",
        need.written,
        "rot {untrusted} {partition} {offset}\npoll {partition} &",
        (2.5, 1.2),
    ),
    FaultKind(
        "disk-lies",
        need.untrusted,
        # It shuts down in good order, and its marker outlives what it speaks for.
        """
        lie {untrusted} names=*.log
        each idle: stop {each}
        1-3x produce {partition} acks=all {values} &
        run {30ms|100ms|300ms}
        stop {untrusted}
        power-cut {untrusted}
        start {untrusted} &
        run {10ms|100ms|1s}
        each idle: start {each} &
        """,
        (1, 1),
        settings={"min.insync.replicas": (2,)},
    ),
    FaultKind(
        "cut-undone",
        need.trusted_leader,
        # What nobody fetched is truncated by its writer, what came instead is known to be committed,
        # and that is written down: then the truncation is lost with the power.
        """
        cut {leader} {others}
        produce
        run {3ms|10ms|30ms}
        lead {partition} last={leader}
        2-3x produce
        heal
        run {100ms|200ms|300ms|400ms}
        power-cut {leader} leaving=uncut
        start {leader} &
        run {10ms|100ms|1s}
        """,
        (0, 1),
        settings={"replica.high.watermark.checkpoint.interval.ms": (200,)},
    ),
    FaultKind(
        "delete-uncommitted",
        need.led,
        """
        alter {topic} segment.bytes={100|200|1073741824}
        cut {leader} {others}
        2-4x produce
        run {3ms|10ms}
        {delete-records {partition} {log end} &|delete-records {partition} all &}
        70% alter {topic} retention.bytes=1
        run {300ms|1s}
        50% lead {partition} last={leader}
        70% heal
        run {30ms|300ms}
        alter {topic} retention.bytes=-1
        """,
        (0, 1.2),
        settings=CHECKED_SOON,
    ),
    FaultKind(
        "isr-shrinks-before-ack",
        need.led,
        # While the leader's disk syncs what all have fetched, all followers leave the ISR.
        """
        alter {topic} flush.messages=1
        slow {leader} disk=500ms
        produce acks=all
        run {20ms|50ms}
        cut {leader} {others}
        produce acks=1
        run 2s
        slow {leader} disk=1ms
        alter {topic} flush.messages=9223372036854775807
        heal
        """,
        (0, 0.8),
        settings={"min.insync.replicas": (2,), "replica.lag.time.max.ms": (500,)},
    ),
    FaultKind(
        "topic-made-again",
        need.settled,
        # A slow controller may fence its brokers again and again, and no topic is known to all then.
        "heal\nslow {controllers} disk=0ms network=1ms\nremake {topic} replicas={assigned}",
        (1, 0.6),
        # Fetches that carry no topic id may be taken for those of the topic before (KIP-516).
        settings={FETCH_VERSION: (17,)},
    ),
    # Leadership that changes while logs differ.
    FaultKind(
        "forked-tail",
        need.led,
        """
        cut {leader} {others}
        produce
        run {soon}
        lead {partition} last={leader}
        50% produce
        50% lead {partition} first={leader}
        70% heal
        30% run {30ms|100ms|300ms}; power-cut {leader}
        """,
        (0, 2),
    ),
    FaultKind(
        "two-elections-at-once",
        need.led,
        # The leader hears of two leader epochs at once, the second of which is its own.
        """
        hold {controller} {leader} FETCH
        cut {leader} {replica}
        produce
        run 10ms
        lead {partition} first={replica},{leader}
        produce
        run {10ms|100ms}
        stop {replica}
        heal {controller} {leader}
        run {soon}
        70% heal
        """,
        (0, 1),
    ),
    FaultKind(
        "uninformed-broker",
        need.led,
        """
        mute {controller} {replica}
        2-3x produce; run {soon}; lead {partition} last={replica}
        produce
        run {soon}
        70% heal
        """,
        (0, 1),
    ),
    FaultKind(
        "back-under-another-leader",
        need.led,
        """
        stop {replica}
        1-4x produce
        run {soon}
        {lead {partition} last={replica}|{kill|power-cut|pause} {leader}}
        start {replica} &
        run {3ms|100ms|3s}
        """,
        (0, 1),
    ),
    # An ISR that changes while its news, or its members, do not arrive.
    FaultKind(
        "replaced-while-joining",
        need.led,
        """
        stop {replica}
        produce
        hold {leader} {controller} ALTER_PARTITION
        start {replica} &
        run 300ms
        stop {replica}
        wipe {replica}
        start {replica} &
        run {soon}
        70% heal
        """,
        (0, 1),
    ),
    FaultKind(
        "controller-dies-while-joining",
        need.led,
        """
        stop {replica}
        produce
        start {replica} &
        run {100ms|110ms|120ms|150ms|200ms}
        kill {controller}
        produce
        run {soon}
        start {controller} &
        """,
        (0, 1),
    ),
    FaultKind(
        "late-isr-news",
        need.led,
        """
        hold {controller} {leader} {FETCH|ALTER_PARTITION}
        cut {leader} {replica}
        produce
        run 2s
        heal {leader} {replica}
        run {30ms|100ms|600ms}
        50% slow {controller} network=400ms
        30% kill {controller}; heal {controller} {leader}; hold {controller} {leader} FETCH; start {controller} &; run 300ms
        30% stop {replica}
        cut {leader} {replica}
        produce
        heal {controller} {leader}
        produce
        run {10ms|100ms|500ms}
        70% heal
        slow {controller} network=1ms
        """,
        (0, 2),
    ),
    FaultKind(
        "isr-change-of-deposed-leader",
        need.led,
        """
        hold {leader} {controller} ALTER_PARTITION after=1
        cut {leader} {replica}
        produce
        run 2s
        heal {leader} {replica}
        run {30ms|100ms|600ms}
        lead {partition} last={leader}
        cut {replica} {brokers not replica}
        produce
        run {soon}
        heal {leader} {controller}
        run {10ms|100ms|500ms}
        70% heal
        """,
        (0, 1),
    ),
    FaultKind(
        "isr-answer-lost",
        need.calm,
        # Asked again, the controller knows of the change already.
        """
        stop {replica}
        produce
        cut {leader} {replica}
        start {replica} &
        run {1s|2s|2s|3s}
        hold {controller} {leader} FETCH
        tear {controller} {leader} ALTER_PARTITION
        heal {leader} {replica}
        run {30ms|100ms|300ms}
        cut {leader} {replica}
        produce
        run {30ms|100ms|300ms}
        50% heal
        """,
        (0, 2),
    ),
    FaultKind(
        "isr-news-after-two-answers",
        need.calm,
        """
        stop {replica}
        stop {second}
        produce
        cut {leader} {replica} {second}
        start {replica} &
        start {second} &
        run {1s|2s|2s|3s}
        hold {controller} {leader} FETCH
        heal {leader} {replica}
        run {30ms|100ms|300ms}
        heal {leader} {second}
        run {30ms|100ms|300ms}
        50% cut {leader} {second}; produce
        heal {controller} {leader}
        run {30ms|100ms|300ms}
        50% heal
        """,
        (0, 1),
    ),
    FaultKind(
        "isr-change-of-former-process",
        need.calm,
        # The request comes after the joining replica's process, and its disk, have been replaced.
        """
        stop {replica}
        produce
        cut {leader} {replica}
        start {replica} &
        run {1s|2s|2s|3s}
        hold {leader} {controller} ALTER_PARTITION
        heal {leader} {replica}
        run {30ms|100ms|300ms}
        cut {leader} {replica}
        stop {replica}
        70% wipe {replica}
        start {replica} &
        run {1s|2s|2s|3s}
        heal {leader} {controller}
        run {30ms|100ms|300ms}
        50% heal
        """,
        (0, 2),
    ),
    FaultKind(
        "session-evicted",
        need.calm,
        # Its leader gives the slot of a follower away that has more to fetch, and hears nothing.
        """
        stop {replica}
        2-4x produce acks=1
        hold {leader} {replica} FETCH after={1|2}
        start {replica} &
        run {500ms|1s|2s}
        sessions {partition} 8 &
        run {30ms|100ms|300ms}
        heal {leader} {replica}
        run {soon}
        """,
        (1, 1),
        settings={
            "max.incremental.fetch.session.cache.slots": (8,),
            "understudy.incremental.fetch.session.eviction.ms": (100,),
            "replica.fetch.max.bytes": (100,),
        },
    ),
    FaultKind(
        "power-fails-everywhere",
        need.calm,
        """
        produce
        each brokers: power-cut {each}; run {30ms|100ms|300ms}
        each brokers: start {each} &; run {1ms|100ms|3s|10s}
        """,
        (0, 1),
    ),
    # A fetch and its answer in different leader epochs. The offsets of two logs agree and their
    # records do not, so only the epochs tell that something is wrong (KIP-320). Fetches of version
    # 11 have no other means; from 12 on a fetch names the epoch of its last record (KIP-595).
    #
    #     b1  [e0: 0-1]           deposed   [e0: 0-0][e1: 1-1]   leads again, in epoch 2
    #     b2  [e0: 0-0]           leads     [e0: 0-0][e1: 1-1]
    #     b3  [e0: 0-1]           deaf      [e0: 0-1]            fetches: has it what b1 has?
    FaultKind(
        "deposed-leader-returns",
        need.calm,
        """
        hold {controller} {second} FETCH
        cut {leader} {replica}
        produce acks=1 to={leader}
        run {brief}
        lead {partition} first={replica},{leader}
        heal {leader} {replica}
        produce acks=1 to={replica}
        run {brief}
        lead {partition} first={leader},{replica}
        run {brief}
        produce
        run {100ms|300ms|600ms}
        70% heal
        """,
        (0, 2),
        settings=EPOCHS,
    ),
    FaultKind(
        "asked-before-it-has-heard",
        need.calm,
        # The former leader leads again, and has not heard of the epoch in which it has to truncate.
        """
        hold {controller} {second} FETCH
        cut {leader} {replica}
        produce acks=1 to={leader}
        run {brief}
        reassign {partition} {replica},{leader},{second}
        run 10ms
        hold {controller} {leader} FETCH
        elect {partition} preferred
        run 3ms
        heal {leader} {replica}
        produce acks=1 to={replica}
        run 10ms
        hold {controller} {replica} FETCH
        lead {partition} first={leader},{replica}
        heal {controller} {second}
        run 5ms
        produce acks=1 to={leader}
        run {brief}
        heal {controller} {leader}
        run 2ms
        hold {controller} {leader} FETCH
        run {brief}
        heal {controller} {leader}
        heal {controller} {replica}
        run {100ms|300ms|600ms}
        70% heal
        """,
        (0, 2),
        settings=EPOCHS,
    ),
    FaultKind(
        "late-epoch-end-answer",
        need.calm,
        """
        each other partitions: lead {each} first={replica}
        run {100ms|300ms|600ms}
        hold {replica} {second} OFFSET_FOR_LEADER_EPOCH
        lead {partition} first={replica},{leader}
        run 10ms
        each other partitions: produce {each} {how} {values} &
        run {brief}
        lead {partition} first={leader},{replica}
        run 10ms
        produce acks=1 to={leader}
        run {brief}
        lead {partition} first={replica},{leader}
        run 10ms
        heal {replica} {second}
        run {100ms|300ms|600ms}
        70% heal
        """,
        (0, 2),
        settings={**EPOCHS, FETCH_VERSION: (11,)},
    ),
    FaultKind(
        "partition-changes-its-fetcher",
        need.calm,
        """
        each partitions: lead {each} first={leader}
        run {100ms|300ms|600ms}
        late {leader} {second} 400ms
        produce {last partition} {how} {values} &
        run {brief}
        late {leader} {second} 1ms
        alter {second} num.replica.fetchers=2
        run {brief}
        alter {second} num.replica.fetchers=1
        run {100ms|300ms|600ms}
        70% heal
        """,
        (0, 2),
        settings={**EPOCHS, FETCH_VERSION: (17,)},
    ),
    # Our own clients, in the runs that have some.
    FaultKind("send", need.producer, "send {sender} {partition} {records} &", (7, 7), always=True),
    FaultKind(
        "transact",
        need.transactional,
        # Several at once, so that one fetch has what follows an aborted one.
        "1-3x transact {sender} {partition} {records}{also}"
        " end={commit|commit|commit|abort|abort|drop} &",
        (7, 7),
        always=True,
    ),
    FaultKind("client-starts", need.client_gone, "{client line}", (4, 4), always=True),
    FaultKind("client-resumes", need.client_paused, "resume {client}", (4, 4), always=True),
    FaultKind("client-killed", need.client, "kill {client}", (1, 1)),
    FaultKind("client-leaves", need.client, "leave {client} &", (1, 1)),
    FaultKind("client-paused", need.client, "pause {client}", (1, 1)),
    FaultKind("client-cut-off", need.client, "cut {client} {other}", (1, 1)),
    FaultKind("client-torn", need.client, "tear {{client} {other}|{other} {client}}", (1, 1)),
    FaultKind(
        "client-held",
        need.client,
        f"hold {{{{client}} {{other}}|{{other}} {{client}}}} {CLIENT_API}",
        (1, 1),
    ),
    FaultKind(
        "reader-seeks",
        need.position,
        # The second seek finds records that were fetched for the first, and not returned yet.
        "1-3x seek {client} {read partition} {position}; run {5ms|50ms|500ms}",
        (3, 3),
        always=True,
    ),
    FaultKind(
        "transaction-fails",
        need.transactional_led,
        # A record of it is given up before its leader is there again.
        """
        hold {{leader} {sender}|{sender} {leader}} PRODUCE after={0|0|1}
        transact {sender} {partition} {records} end=commit &
        run 4s
        heal {leader} {sender}
        """,
        (2, 2),
        always=True,
    ),
    FaultKind("coordinator-killed", need.coordinator, "kill {coordinator}", (1, 1)),
    FaultKind(
        "copier-wakes-up",
        need.copier,
        # It stops with a transaction open, and its group goes on without it.
        """
        hold {copier} {coordinator} TXN_OFFSET_COMMIT
        produce acks=all
        run {20ms|150ms|1s}
        pause {copier}
        run 8s
        heal {copier} {coordinator}
        resume {copier}
        """,
        (1, 1),
    ),
    FaultKind(
        "producer-gives-up",
        need.producer_led,
        # It hears nothing of what is there.
        """
        hold {{leader} {sender}|{sender} {leader}} PRODUCE after={0|0|1}
        send {sender} {partition} {records} &
        run 5ms
        send {sender} {partition} {records} &
        run 5ms
        send {sender} {partition} {records} &
        run 4s
        heal {leader} {sender}
        send {sender} {partition} {records} &
        """,
        (2, 2),
    ),
)

GROUP_FAULTS = (
    # The members of a group come and go more often than other clients: each time the group has to
    # share its partitions anew, and a mixed group may have to change its protocol.
    FaultKind(
        "member-comes-back",
        need.member,
        """
        {kill {member}|leave {member} &}
        run {20ms|1s|9s}
        {member line}
        """,
        (5, 5),
    ),
    FaultKind(
        "coordinator-fails-over",
        need.member_coordinated,
        """
        {kill {member}|pause {member}|leave {member} &}
        run {20ms|200ms|1s|7s}
        {kill|pause} {coordinator}
        run {100ms|3s}
        {member line}
        """,
        (3, 3),
    ),
    FaultKind(
        "partitions-for-a-group",
        need.member_with_room,
        "grow {topic} {count} {some replicas} &; run {20ms|1s|6s}",
        (1, 1),
    ),
)
"""The faults of runs with groups of KIP-848, or mixed ones; all of these runs have all of them."""

QUORUM_FAULTS = (
    # Any of the controllers is a node that may fail as brokers do; these are about the one that
    # decides, and about the majority that it needs. No disk of a controller is replaced or lies:
    # what a majority has synced is what all the rest stands on (`Situation.allows`).
    FaultKind("request", need.anything, "{request}", (4, 2), always=True),
    FaultKind(
        "deciding-controller-fails",
        need.deciding,
        "{kill|power-cut|pause|stop} {controller}",
        (2, 1),
        always=True,
    ),
    FaultKind(
        "controllers-one-way",
        need.deciding,
        # It hears the others and they do not hear it, or the other way round, or neither.
        """
        {mute {controller} {others}|cut {controller} {others}|cut {controller} {not controller}}
        30% heal; each others: mute {each} {controller}
        {request}
        run {500ms|2s|4s}
        {request}
        70% heal
        """,
        (2, 1),
    ),
    FaultKind(
        "decided-alone",
        need.deciding,
        # It may decide for as long as it takes to notice that nobody fetches; nothing of it counts.
        """
        cut {controller} {others}
        50% {kill|power-cut} {broker}
        {request}
        run {10ms|300ms|1s}
        {kill|power-cut|pause} {controller}
        run {1s|3s|5s}
        {request}
        50% heal
        start {controller} &
        resume {controller}
        """,
        (2, 1),
    ),
    FaultKind(
        "decided-with-one",
        need.deciding,
        # One of the others has the decision, and the next leader must be that one.
        """
        hold {controller} {standby} FETCH
        {request}
        {kill|power-cut|pause} {controller}
        heal {controller} {standby}
        run {1s|3s|5s}
        {request}
        start {controller} &
        resume {controller}
        """,
        (2, 1),
    ),
    FaultKind(
        "majority-of-controllers-fails",
        need.deciding,
        """
        {kill|power-cut} {controller}
        {kill|power-cut|pause} {standby}
        {request}
        run {10ms|1s|3s}
        start {standby} &
        resume {standby}
        run {10ms|1s|3s}
        start {controller} &
        """,
        (1, 1),
    ),
    FaultKind(
        "power-fails-for-controllers",
        need.deciding,
        """
        {request}
        each controllers: power-cut {each}; run {1ms|30ms|300ms}
        each controllers: start {each} &; run {1ms|100ms|3s}
        """,
        (1, 1),
    ),
    FaultKind(
        "power-fails-in-an-election",
        need.deciding,
        """
        {kill|power-cut} {controller}
        run {600ms|1s|2s|2100ms|2500ms|3s}
        each others: power-cut {each}; start {each} &; run {1ms|100ms|1s}
        start {controller} &
        """,
        (1, 1),
    ),
    FaultKind(
        "controller-returns",
        need.deciding,
        # One that was cut off has waited for an election all the time.
        """
        cut {standby} {not standby}
        run {3s|6s}
        {request}
        heal {standby} {not standby}
        run {10ms|1s|3s}
        {request}
        """,
        (1, 0.5),
    ),
    FaultKind(
        "controllers-disk-is-slow",
        need.deciding,
        """
        slow {{controller}|{others}} disk={50ms|500ms}
        30% pause {standby}
        {request}
        run {10ms|500ms}
        50% {kill|power-cut} {controller}
        {request}
        run {1s|3s}
        """,
        (2, 1),
    ),
    FaultKind(
        "controllers-disk-fails",
        need.deciding,
        "fail {{controller}|{standby}} {write|sync} names={*|*.log|quorum-state*}"
        " error={EIO|ENOSPC} skip={0|1|2|3}",
        (1, 0.5),
    ),
)
"""The faults of runs with several controllers."""

COMBINED_FAULTS = (
    # One process, one clock and one disk have both roles, and one fault hits both: the partition's
    # leader and the controller that would elect another; a member of the ISR and a voter.
    FaultKind(
        "leader-decides-and-fails",
        need.deciding,
        """
        70% lead {partition} first={controller}
        run {10ms|100ms|300ms}
        produce
        {request}
        {kill {controller}|power-cut {controller}|pause {controller}|cut {controller} {not controller}}
        produce
        {request}
        run {10ms|1s|3s|5s}
        produce
        start {controller} &
        resume {controller}
        70% heal
        """,
        (3, 2),
    ),
    FaultKind(
        "voter-and-replica-fail",
        need.deciding,
        # With it a partition may be left below its minimum, and the quorum without a majority.
        """
        {kill {standby}|power-cut {standby}|pause {standby}|cut {standby} {not standby}}
        produce
        {request}
        run {10ms|500ms|3s}
        30% {kill|power-cut|pause} {controller}
        start {standby} &
        resume {standby}
        run {1ms|30ms|300ms}
        produce
        {request}
        70% heal
        start {controller} &
        resume {controller}
        """,
        (2, 1),
    ),
    FaultKind(
        "one-disk-for-both-roles",
        need.deciding,
        # A vote, a decision and a record wait for the same disk; then its power fails.
        """
        slow {{controller}|{standby}} disk={50ms|500ms}
        produce
        {request}
        run {1ms|10ms|100ms|600ms}
        power-cut {{controller}|{standby}}
        run {1ms|300ms|3s}
        each controllers: start {each} &
        """,
        (2, 1),
    ),
    FaultKind(
        "power-fails-for-both-roles",
        need.deciding,
        """
        produce
        {request}
        run {1ms|10ms|100ms}
        each controllers: power-cut {each}; run {1ms|30ms|300ms}
        each controllers: start {each} &; run {1ms|100ms|3s}
        """,
        (1, 0.5),
    ),
)
"""The faults of runs whose controllers are brokers, too; all of these runs have all of them."""

HARDWARE_FAULTS = (
    # Clocks and processors: no two run alike.
    FaultKind("clock-speed", need.anybody, "speed {node} {0.9|0.99|1.01|1.1|1.5}", (2, 1)),
    FaultKind("busy-processor", need.anybody, "slow {node} cpu={1ms|1ms|5ms|20ms}", (2, 1)),
    # Disks that fail where the others of the table do not.
    FaultKind(
        "read-fails",
        need.broker,
        "fail {node} read names={*|*.log|*.index} error=EIO skip={0|1|2|5}",
        (1, 0),
    ),
    FaultKind(
        "disk-stays-full",
        need.broker,
        """
        fail {node} write names=*.log error=ENOSPC times=always
        produce
        run {100ms|3s}
        30% start {node} &
        """,
        (1, 0.3),
    ),
    FaultKind(
        "log-directory-fails",
        need.broker,
        "fail {node} {write|sync|read} names=/{node}/{log|spare|spare}/* error=EIO times=always",
        (1, 0.3),
    ),
    # What no checksum guards: no record may be lost for an index or a checkpoint.
    FaultKind(
        "index-rots",
        need.indexed,
        "rot {node} {index}\npoll {partition} &\n50% lead {partition} last={node}",
        (1.5, 1),
        settings={"log.index.interval.bytes": (1, 100)},
    ),
    FaultKind(
        "checkpoint-rots",
        need.with_checkpoint,
        "rot {node} {checkpoint}\nstart {node} &\nrun {30ms|1s}",
        (2, 1),
    ),
    FaultKind(
        "write-misdirected",
        need.untrusted,
        """
        misdirect {untrusted} {partition} {20|512}
        1-3x produce {partition} acks=all {values} &
        run {30ms|100ms|300ms}
        power-cut {untrusted}
        start {untrusted} &
        run {10ms|100ms|1s}
        """,
        (1, 1),
        settings={"min.insync.replicas": (2,)},
    ),
    # The power fails between two operations of one change: when a log rolls, is cut or begins anew,
    # when a checkpoint is replaced, while a node starts or stops.
    FaultKind(
        "power-fails-amid-a-change",
        need.running,
        "power-cut {node} at={write|write|sync|rename|truncate|remove}"
        " names={*|*.log|*.log|*checkpoint*} after={0|1|2|3|5|8}",
        (1, 1),
    ),
)
"""Faults of clocks, processors, log directories and files, which some runs have."""

PROTOCOL_FAULTS = (
    # Clients that break their protocol, and judge the answers (`scenarios.world.probes`).
    FaultKind("session-out-of-order", need.led, "probe-session {partition}", (4, 3)),
    FaultKind(
        "producer-out-of-order",
        need.led,
        "probe-producer {partition} {value} {value} {value} {value} {value} {value} {value} {value}",
        (4, 3),
    ),
    # The new replica is in sync, and the move waits for another one, when it is called off.
    FaultKind(
        "move-called-off",
        need.newcomer,
        """
        stop {replica}
        produce
        reassign {partition} {leader},{newcomer},{replica}
        run {300ms|1s|3s}
        50% produce
        50% reassign {partition} {leader},{replica}
        reassign {partition} back
        run {100ms|1s}
        start {replica} &
        """,
        (6, 0),
    ),
)
"""Faults of clients and operators; some runs have all of them."""

LAST_FAULTS = (
    # What an ISR was answered comes two leader epochs too late (KAFKA-12686).
    #
    #     b1   leads, in epoch 0           isr b1 b2       asked for; the answer is held up
    #     b2   leads, in epoch 1           isr b1 b2 b3    b3 is back
    #     b1   leads again, in epoch 2     isr b1 b2 b3    all that it has heard of this
    #                                      isr b1 b2       the answer
    FaultKind(
        "isr-answer-two-epochs-late",
        need.whole,
        """
        hold {controller} {leader} ALTER_PARTITION
        cut {leader} {second}
        produce acks={all|1}
        run 2s
        hold {leader} {controller} FETCH
        run 600ms
        heal {leader} {second}
        lead {partition} first={replica},{leader}
        run {100ms|200ms|300ms}
        lead {partition} first={leader},{replica}
        run {10ms|30ms|100ms}
        cut {leader} {second}
        unmute {leader} {controller}
        run 100ms
        unmute {controller} {leader}
        produce acks=1 to={leader}
        run {100ms|200ms|300ms}
        """,
        (0, 0.35),
    ),
    # A producer that has written before gives up what is there, and numbers from the beginning
    # (KIP-360). Under the same epoch that would be taken for what it wrote first, which is known
    # by its numbers, so all batches have one record.
    FaultKind(
        "producer-numbers-anew",
        need.led_with_producers,
        """
        producer p9 linger.ms=0 delivery.timeout.ms=3000 request.timeout.ms=500 max.block.ms=15000
        send p9 {partition} {record}
        hold {leader} p9 PRODUCE
        send p9 {partition} {record} &
        run 4s
        heal {leader} p9
        send p9 {partition} {record} &
        run 2s
        """,
        (0.7, 0.7),
    ),
    # A copy loop is replaced while a transaction of it is about to end; then it wakes up, and what
    # it had said arrives. Were its generation believed, each record would be copied twice; so they
    # would be if its successor were answered what is committed before that is settled (KIP-447).
    FaultKind(
        "copier-taken-over",
        need.copiers,
        """
        copier w8 h t u-0 {patience}
        copier w9 h t u-0 {patience}
        run 12s
        each copiers: hold {each} {coordinator} {api}
        each partitions: produce {each} acks=all {timeout} {values} &
        run {300ms|1s}
        pause {copier at work}
        each other copiers: heal {each} {coordinator}
        run 12s
        heal {copier at work} {coordinator}
        resume {copier at work}
        run 3s
        """,
        (0.8, 0.8),
    ),
)
"""The events that may follow when all is whole again, in this order, with the share of runs that have each."""

EXAMINATIONS = (
    FaultKind(
        "log-of-transactions",
        need.without_transactions,
        f"topic {TRANSACTIONS} replicas={{some replicas}} min.insync.replicas=1 cleanup.policy=compact",
        (1, 1),
    ),
    FaultKind(
        "transactions-out-of-order",
        need.some_replicas,
        """
        topic probed replicas={some replicas}/{some replicas} min.insync.replicas=1
        probe-transactions probed
        produce probed-1 acks=all {value}
        probe-quiet-session probed
        """,
        (1, 1),
    ),
    FaultKind(
        "log-of-groups",
        need.without_groups,
        f"topic {OFFSETS} replicas={{some replicas}} min.insync.replicas=1 cleanup.policy=compact",
        (1, 1),
    ),
    FaultKind("member-out-of-order", need.anything, "probe-group probed", (1, 1)),
    FaultKind(
        "throttled-catch-up",
        need.one_batch_a_fetch,
        f"""
        topic slow replicas={{leader}},{{replica}} min.insync.replicas=1
        topic free replicas={{leader}},{{replica}} min.insync.replicas=1
        alter {{leader}} leader.replication.throttled.rate={RATE}
        stop {{replica}}
        9-9x produce slow-0 acks=1 {{value}}
        alter slow leader.replication.throttled.replicas=*
        probe-throttle slow-0 free-0 {{replica}}
        start {{replica}}
        """,
        (1, 1),
    ),
    # A disk has lost a sync, or a truncation, and the next start finds what was there before. What
    # it has lost in the end is all of a log that begins later: its start was written down.
    FaultKind(
        "log-damaged",
        need.two_brokers,
        """
        topic damaged replicas={leader},{replica} min.insync.replicas=1 segment.bytes=200
        4-6x produce damaged-0 acks=all {value}
        lead damaged-0 first={replica},{leader}
        run 300ms
        lead damaged-0 first={leader},{replica}
        run 300ms
        2-3x produce damaged-0 acks=all {value}
        wait equal damaged-0
        kill {replica}
        stale {replica} damaged-0 {repeated|earlier}
        start {replica}
        wait whole damaged-0
        wait equal damaged-0
        delete-records damaged-0 3
        stop {replica}
        start {replica}
        wait whole damaged-0
        kill {replica}
        lose {replica} damaged-0 all
        start {replica}
        wait whole damaged-0
        wait equal damaged-0
        """,
        (1, 1),
    ),
    # The coordinator dies after it has decided, and the leader before it has heard of that: the next
    # coordinator finds it in its log.
    FaultKind(
        "coordinator-dies-prepared",
        need.transactions_elsewhere,
        """
        topic kept replicas={leader} min.insync.replicas=1
        producer x7 transactional.id=x7 transaction.timeout.ms=10000
        transact x7 kept-0 {record}
        hold {coordinator} {leader} WRITE_TXN_MARKERS
        transact x7 kept-0 {record} end={commit|abort} &
        run 500ms
        kill x7
        kill {coordinator} {leader}
        heal
        start {coordinator}
        start {leader}
        wait stable kept-0
        """,
        (1, 1),
    ),
    # A new replica alone is eligible when the move is to be called off: the old one has died, and
    # may have lost what it had, so calling it off would lose what was committed (KIP-966).
    FaultKind(
        "move-called-off-eligible",
        need.three_brokers,
        """
        topic moved replicas={leader} min.insync.replicas=2
        stop {replica}
        reassign moved-0 {leader},{third},{replica}
        run 2s
        produce moved-0 acks=all {value}
        kill {leader}
        run 10s
        cut {leader} {third}
        start {leader}
        run 500ms
        stop {third}
        reassign moved-0 back
        heal
        start {third}
        start {replica}
        wait moved moved-0
        wait whole moved-0
        """,
        (1, 1),
    ),
    # A follower has not heard of two elections, and its fetches name no epoch: its leader leads again,
    # and answers it with records of an epoch in which it does not follow yet.
    FaultKind(
        "epoch-not-heard-of",
        need.three_brokers_without_epochs,
        """
        topic unheard replicas={leader},{replica},{third} min.insync.replicas=1
        produce unheard-0 acks=all {value}
        hold {controller} {third} FETCH
        lead unheard-0 first={replica},{leader}
        run 100ms
        lead unheard-0 first={leader},{replica}
        run 100ms
        produce unheard-0 acks=1 {value}
        run 500ms
        heal
        wait whole unheard-0
        """,
        (1, 1),
    ),
    # A follower cuts several segments off, and later starts over behind all that it has. Each time
    # its power fails in the middle of it.
    FaultKind(
        "power-fails-amid-a-cut",
        need.two_brokers,
        """
        topic cut replicas={leader},{replica} min.insync.replicas=1 segment.bytes=200 flush.messages=1
        2-5x produce cut-0 acks=all {value}
        wait equal cut-0
        cut {leader} {replica}
        3-6x produce cut-0 acks=1 {value}
        lead cut-0 first={replica},{leader}
        power-cut {leader} at={rename|truncate} names=*/cut-0/*.log after={0|1|2|4|6|9}
        heal
        run 1s
        recover
        wait whole cut-0
        wait equal cut-0
        stop {leader}
        2-4x produce cut-0 acks=1 {value}
        delete-records cut-0 all
        power-cut {leader} at=rename names=*/cut-0/*.log after={0|1|2|4|6|9|15}
        start {leader} &
        run 1s
        recover
        wait whole cut-0
        wait equal cut-0
        judge cut-0
        """,
        (1, 1),
    ),
    # One broker alone forgets soon, so nothing that comes back to another one expires again. It does
    # so for the rest of the run.
    FaultKind(
        "producers-expire",
        need.coordinating_transactions,
        f"""
        {_coordinates_with(EXPIRES_SOON, TRANSACTIONS)}
        topic silent replicas={{coordinator}} min.insync.replicas=1
        probe-expiry silent {{coordinator}}
        """,
        (1, 1),
    ),
    # A commit and a member are in the log, and are replicated when their coordinator has given up.
    # Then a group moves whose member has a session at its former coordinator.
    FaultKind(
        "commit-replicated-late",
        need.coordinating_groups,
        f"""
        {_coordinates_with(GIVES_UP_SOON, OFFSETS)}
        run 1s
        judge-rest
        each followers: hold {{each}} {{coordinator}} FETCH
        commit late {{partition}} 1
        probe-join probed
        heal
        wait equal {OFFSETS}-0
        judge-groups
        probe-silent-member probed
        probe-join probed
        lead {OFFSETS}-0 last={{coordinator}}
        run 3s
        judge-rest
        """,
        (1, 1),
    ),
)
"""The last lines of an examined run, in this order. Their rules need a cluster without other faults,
and a topic of their own. They change nothing of what the run has drawn before."""
