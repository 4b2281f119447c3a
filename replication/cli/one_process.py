"""`understudy up` with all nodes in one process; it is imported only for that."""

from typing import TYPE_CHECKING

import attrs
import trio

from replication.broker.nodes import is_controller, node_configs, node_directory
from replication.cli.interruptions import STOP_SIGNALS
from replication.cli.output import tell
from replication.cli.running import allow_many_files, journal_sink, reporting_bugs
from replication.cli.served import MetricsServer, PageServer, check_http, control_sites, serve
from replication.cli.storage import format_new_directories
from replication.cluster.cluster import Cluster, open_cluster
from replication.config import BrokerConfig
from replication.errors import UnderstudyError
from replication.events import EventSink, fan_out, ignore
from replication.faults.impairments import Impairments
from replication.net.clock import LoopClock
from storage.attributes import define
from storage.filesystem import OsFileSystem

if TYPE_CHECKING:
    from replication.cli.up import ClusterPlan

LOOK_SECONDS = 0.5


@define(eq=False)
class OneProcess:
    """A cluster in this process, which holds the lock of its data."""

    plan: "ClusterPlan"
    _metrics: MetricsServer = attrs.field(init=False)
    _page: PageServer = attrs.field(init=False)
    _journals: dict[int, EventSink] = attrs.field(init=False, factory=dict)

    def run(self) -> None:
        self._metrics = MetricsServer(self.plan.metrics)
        self._page = PageServer(self.plan.ui)
        check_http(self.plan.control)
        allow_many_files()
        self.plan.data_dir.mkdir(parents=True, exist_ok=True)
        lock = OsFileSystem().lock(str(self.plan.data_dir / ".lock"))
        self.plan.warn()
        try:
            format_new_directories(self._configs().values())
            trio.run(self._run, clock=LoopClock())
        finally:
            lock.release()

    def _configs(self) -> dict[int, BrokerConfig]:
        plan = self.plan
        return node_configs(
            brokers=plan.brokers,
            controllers=plan.controllers,
            combined=plan.combined,
            data_dir=str(plan.data_dir),
            properties=plan.properties,
        )

    async def _run(self) -> None:
        on_bug = self._metrics.on_bug(reporting_bugs(ignore))
        refused: UnderstudyError | None = None
        opened = open_cluster(
            brokers=self.plan.brokers,
            controllers=self.plan.controllers,
            combined=self.plan.combined,
            data_dir=str(self.plan.data_dir),
            base_port=self.plan.first_port,
            properties=self.plan.properties,
            make_sink=self._sink,
            impairments=Impairments() if self.plan.ui or self.plan.control else None,
            on_bug=on_bug,
        )
        with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
            async with opened as cluster, trio.open_nursery() as nursery:
                nursery.start_soon(_tell_failures, cluster)
                try:
                    for rule in self.plan.rules:
                        cluster.faults.add(rule)
                    sites = self._metrics.sites_beside(cluster, nursery)
                    sites += self._page.sites(cluster, nursery)
                    sites += control_sites(self.plan.control, cluster)
                    urls = await serve(sites, nursery, on_bug)
                except UnderstudyError as error:
                    refused = error  # raised after the cluster has shut down in good order
                else:
                    self.plan.show(cluster.bootstrap_list, urls)
                    await anext(signals)
                    cluster.let_go()  # a frozen node would not shut down
                nursery.cancel_scope.cancel()
        if refused is not None:
            raise refused

    def _sink(self, node_id: int) -> EventSink:
        broker_id = None if is_controller(node_id) else node_id
        others = [*self._metrics.sinks(broker=broker_id), *self._page.sinks(node_id)]
        return fan_out(self._journal(node_id), *others)

    def _journal(self, node_id: int) -> EventSink:
        """Return the journal sink of a node, which all its incarnations share."""
        if node_id not in self._journals:
            directory = self.plan.data_dir / node_directory(node_id)
            directory.mkdir(parents=True, exist_ok=True)
            path = str(directory / "events.journal")
            self._journals[node_id] = journal_sink(path, node_id=node_id)
        return self._journals[node_id]


async def _tell_failures(cluster: Cluster) -> None:
    known: dict[int, Exception] = {}
    while True:
        for node_id, error in cluster.failures.items():
            if known.get(node_id) is not error:
                known[node_id] = error
                tell(f"understudy: node {node_id} has ended: {error}")
        await trio.sleep(LOOK_SECONDS)
