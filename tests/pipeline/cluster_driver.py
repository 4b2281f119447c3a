"""Every job over one failover, with one session: what it says, as JSON.

python -m tests.pipeline.cluster_driver MASTER DATA_DIR TO
"""

import json
import sys
from pathlib import Path
from typing import Any


def every_job(session: Any, data_dir: Path, to: Path) -> dict[str, Any]:
    """Audit, lag, failover and export; without what differs between any two runs."""
    from pipeline.audit.job import audit, of_directories
    from pipeline.audit.results import AuditReport, to_json as audit_json
    from pipeline.export.job import export
    from pipeline.export.parquet import ParquetTarget
    from pipeline.journals import failover, lag
    from pipeline.journals.source import read_events
    from tests.pipeline.exports import made

    log_dirs = {path.parent.name: str(path) for path in sorted(data_dir.glob("broker-*/log"))}
    events = read_events(session, [str(data_dir)])
    exported = export(
        session,
        {"path": ",".join(log_dirs.values()), "subscribePattern": "(?!__).*"},
        ParquetTarget(to),
        made("string", "string"),
    ).to_json()
    for file in exported["files"]:
        del file["size"]
    return {
        "audit": audit_json(AuditReport(audit(of_directories(session, log_dirs, check_crcs=True)))),
        "lag": lag.to_json(lag.lag_report(events, min_isr=lag.MinIsr())),
        "failover": failover.to_json(failover.failover_report(events)),
        "export": exported,
    }


if __name__ == "__main__":
    from pipeline.session import SETTINGS, get_session

    master, data, target = sys.argv[1:]
    session = get_session(master=master, quick=True)
    settings = {name: session.conf.get(name) for name in SETTINGS}
    found = every_job(session, Path(data), Path(target))
    print(json.dumps(found | {"settings": settings}))
