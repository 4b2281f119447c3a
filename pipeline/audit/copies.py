"""One replica of a partition, as the judgement has it."""

import attrs

from pipeline.audit.header_stream import Columns, HeaderStream
from replication.verify.lock_step import Past
from storage.types import Offset


@attrs.frozen(kw_only=True)
class Copy:
    """Its row, and those of its batches."""

    replica: str
    directory: str | None
    topic_id: str | None
    log_start_offset: Offset
    segments: tuple[Offset, ...]
    past: Past = attrs.field(factory=Past)
    rows: Columns

    def stream(self) -> HeaderStream:
        return HeaderStream(self.replica, self.directory, list(self.segments), self.rows)

    @property
    def start_offset(self) -> Offset:
        return max(self.log_start_offset, self.segments[0] if self.segments else 0)
