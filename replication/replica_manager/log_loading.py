"""The start of a broker's logs: all are opened, off the loop and several at a time.

    find_logs ──> directory a: t-0 t-1 t-2 ...    num.recovery.threads.per.data.dir workers
             └──> directory b: t-3 ...            each, and as many for the next directory

Reading and the CRC do not hold the GIL, so two logs are recovered in less time than one after
the other, and the loop goes on meanwhile. A repaired log is an event; an error that makes the
start impossible is raised as it is, once the jobs that have begun are over.

(LogManager.loadLogs in Kafka.)
"""

import trio

from replication.events import EventSink, LogDirectoryWarned, LogRecovered, LogRepaired
from replication.net.seams import Offload
from storage.log.recovery.report import RecoveryReport
from storage.manager.log_manager import LoadJob, LogManager


async def load_logs(
    logs: LogManager, offload: Offload, sink: EventSink, *, threads_per_directory: int
) -> None:
    failures: list[Exception] = []
    directories = await offload(logs.find_logs)
    async with trio.open_nursery() as nursery:
        for jobs in directories:
            waiting = list(reversed(jobs))
            for _ in range(min(threads_per_directory, len(jobs))):
                nursery.start_soon(_work, waiting, offload, failures)
    if failures:
        raise failures[0]
    reports = logs.all_loaded()
    for directory in logs.directories:
        for message in directory.warnings:
            sink(LogDirectoryWarned(directory=directory.path, message=message))
    for report in reports:
        _tell(report, sink)


async def _work(waiting: list[LoadJob], offload: Offload, failures: list[Exception]) -> None:
    while waiting and not failures:
        try:
            await offload(waiting.pop())
        except Exception as error:  # noqa: BLE001 - raised again when all have stopped
            failures.append(error)


def _tell(report: RecoveryReport, sink: EventSink) -> None:
    for repair in report.repairs:
        sink(
            LogRepaired(
                partition=report.topic_partition,
                path=repair.path,
                position=repair.position,
                offset=repair.offset,
                cause=repair.cause,
                bytes=repair.bytes,
                kept=repair.kept,
            )
        )
    sink(
        LogRecovered(
            partition=report.topic_partition,
            recovery_point=report.recovery_point,
            log_end_offset=report.log_end_offset,
            truncated_bytes=report.bytes_truncated,
            clean=report.clean,
        )
    )
