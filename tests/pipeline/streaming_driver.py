"""A driver of its own, to be killed: a topic into Parquet, for as long as it lives.

python -m tests.pipeline.streaming_driver SERVERS TOPIC DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from pipeline.session import get_session


def start(spark: Any, servers: str, topic: str, work: Path, **trigger: Any) -> Any:
    """The query, a hundred records at a time; its checkpoint and its table are under `work`."""
    table = (
        spark.readStream.format("understudy")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100")
        .load()
    )
    return (
        table.writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(**trigger)
        .start(str(work / "table"))
    )


if __name__ == "__main__":
    session = get_session(master="local[2]", quick=True)
    servers, topic, directory = sys.argv[1:]
    start(session, servers, topic, Path(directory), processingTime="0 seconds").awaitTermination()
