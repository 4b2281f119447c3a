"""The metrics of compaction, under Kafka's names (LogCleaner, LogCleanerManager: `kafka.log`).

LogCleaner         cleaner-recopy-percent           bytes written, as a share of the bytes read
                   max-clean-time-secs              of the last round of each cleaner
                   max-buffer-utilization-percent   how full the offset maps were
                   max-compaction-delay-secs        past max.compaction.lag.ms
                   DeadThreadCount                  cleaners that have died of a bug
LogCleanerManager  max-dirty-percent                of the dirtiest log
                   uncleanable-partitions-count     in each log directory
"""

from collections.abc import Callable
from functools import partial

from replication.metrics import MetricName, MetricsRegistry
from replication.replica_manager.compaction import Compaction

_GROUP = "kafka.log"


def register(registry: MetricsRegistry, compaction: Compaction) -> None:
    """Register the gauges for as long as the broker lives."""
    cleaner = compaction.log_manager.cleaner
    threads = compaction.threads
    gauges: dict[tuple[str, str], Callable[[], float]] = {
        ("LogCleaner", "cleaner-recopy-percent"): partial(_recopied, compaction),
        ("LogCleaner", "max-clean-time-secs"): lambda: int(
            max((each.clean_seconds for each in threads.values()), default=0)
        ),
        ("LogCleaner", "max-buffer-utilization-percent"): lambda: int(
            100 * max((each.map_utilization for each in threads.values()), default=0)
        ),
        ("LogCleaner", "max-compaction-delay-secs"): lambda: cleaner.max_delay_ms // 1000,
        ("LogCleaner", "DeadThreadCount"): lambda: compaction.dead_thread_count,
        ("LogCleanerManager", "max-dirty-percent"): lambda: int(100 * cleaner.dirtiest_ratio),
    }
    for (kind, name), read in gauges.items():
        registry.gauge(MetricName(_GROUP, kind, name), read)
    for path in compaction.log_manager.log_dirs:
        registry.gauge(
            MetricName(
                _GROUP,
                "LogCleanerManager",
                "uncleanable-partitions-count",
                (("logDirectory", path),),
            ),
            partial(cleaner.uncleanable_partitions, path),
        )


def _recopied(compaction: Compaction) -> float:
    stats = [each.stats for each in compaction.threads.values()]
    read = sum(each.bytes_read for each in stats)
    return int(100 * sum(each.bytes_written for each in stats) / max(read, 1))
