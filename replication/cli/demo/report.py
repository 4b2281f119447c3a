"""The result of the demo: the ledger, the failover and the replicas, as text or as JSON."""

from collections.abc import Iterator
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from replication.cli.demo.run import DemoOutcome
from replication.cli.demo.timeline import FailoverMoment
from replication.verify import Comparison, Same


@attrs.frozen
class Report:
    """The result; `audit_same` is None without Spark, with the reason in `audit_note`."""

    outcome: DemoOutcome
    comparison: Comparison
    audit_same: bool | None
    audit_note: str

    @property
    def ok(self) -> bool:
        """Whether no acknowledged record is lost or altered, and the replicas are equal."""
        return (
            self.outcome.verdict.acked_and_lost == 0
            and self.outcome.altered == 0
            and self.comparison.same
            and self.audit_same is not False
        )

    def to_dict(self) -> dict[str, Any]:
        facts: dict[str, Any] = attrs.asdict(self.outcome)
        facts["log_dirs"] = [str(path) for path in self.outcome.log_dirs]
        facts["verify"] = self.comparison.to_dict()
        facts["audit"] = {"same": self.audit_same, "note": self.audit_note}
        return facts | {"ok": self.ok}

    def show(self, console: Console) -> None:
        outcome = self.outcome
        console.print(
            f"\nbroker {outcome.victim} was killed with {outcome.in_flight_at_kill:,} records in "
            f"flight and {outcome.to_come_at_kill:.0%} of the work still to come\n",
            soft_wrap=True,
        )
        console.print(self._ledger())
        console.print(_timeline(outcome.moments))
        for line in self._verified():
            console.print(f"verify: {line}", highlight=False, soft_wrap=True)
        console.print(f"pipeline audit: {self.audit_note}", highlight=False, soft_wrap=True)
        verdict = "no acked record is lost, and the replicas are equal" if self.ok else "FAILED"
        console.print(f"\n{verdict}", style="green" if self.ok else "red")

    def _verified(self) -> Iterator[str]:
        """Yield a line for each partition, and one for all those that are the same and empty."""
        empty = 0
        for result in self.comparison.partitions:
            if isinstance(result, Same) and not result.compared.batches:
                empty += 1
            else:
                yield str(result)
        if empty:
            yield f"{empty} more are the same and empty"

    def _ledger(self) -> Table:
        verdict = self.outcome.verdict
        table = Table(title="loss ledger", title_justify="left")
        table.add_column("records")
        table.add_column("count", justify="right")
        table.add_row("acked and committed", f"{verdict.acked_and_committed:,}")
        table.add_row("acked and lost", f"{verdict.acked_and_lost:,}")
        table.add_row("never acked", f"{verdict.never_acked:,}")
        table.add_row("duplicated", f"{verdict.duplicated:,}")
        if self.outcome.altered:
            table.add_row("altered", f"{self.outcome.altered:,}")
        for reason, count in self.outcome.client_errors.items():
            table.add_row(f"  given up: {reason}", f"{count:,}")
        return table


def _timeline(moments: list[FailoverMoment]) -> Table:
    table = Table(title="failover", title_justify="left")
    table.add_column("after", justify="right")
    table.add_column("what")
    table.add_column("detail")
    start = moments[0].at_ms
    for moment in moments:
        known = moment.at_ms is not None and start is not None
        after = f"{(moment.at_ms - start) / 1000:.3f} s" if known else "not seen"  # type: ignore[operator]
        table.add_row(after, moment.what, moment.detail)
    return table
