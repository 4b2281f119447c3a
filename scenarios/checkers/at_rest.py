"""The facts that the rules of `ends` check: waiting requests and files, once nothing happens."""

import contextlib
from collections.abc import Iterator

from replication.broker.broker import Broker
from replication.cluster.interface import NotInTimeError
from replication.metadata.rules import METADATA_PARTITION
from scenarios.checkers import ends
from scenarios.checkers.violation import Wrong
from scenarios.world.cluster import SimulatedCluster


async def until_answered(cluster: SimulatedCluster) -> None:
    """Wait until no Produce or DeleteRecords request waits, or the time limit has passed."""

    def is_answered() -> bool:
        return not any(sum(waiting(each).values()) for each in cluster.brokers.values())

    with contextlib.suppress(NotInTimeError):
        await cluster.until(is_answered, what="everybody is answered")


def waiting(broker: Broker) -> dict[str, int]:
    manager = broker.replica_manager
    return {
        "Produce": manager.purgatories.produce.waiting,
        "DeleteRecords": manager.purgatories.delete_records.waiting,
    }


def tidy(cluster: SimulatedCluster, name: str, broker: Broker) -> Iterator[Wrong]:
    disk, online = cluster.disk(name), broker.replica_manager.hosted.online
    hosted = {str(each) for each in (*online, METADATA_PARTITION)}
    for path in broker.config.log_dirs:
        names = disk.list_directory(path)
        yield from ends.tidy_directory(name, names, hosted)
    for partition, replica in online.items():
        yield from ends.tidy_log(
            f"{partition} on {name}",
            disk.list_directory(replica.log.directory),
            segments=replica.log.segments.base_offsets,
            log_end=replica.log.log_end_offset,
            compacted=replica.log.config.is_compacted,
        )
