"""The settings that all tasks of a read share; they travel to the executors with the reader."""

import attrs

from pipeline.source.columns import Projection
from pipeline.source.filters import Narrowing
from pipeline.source.options import Fetching


@attrs.frozen(kw_only=True)
class SourceReadSettings:
    """The columns and batches to read, and what to do about damage and loss."""

    projection: Projection
    narrowing: Narrowing
    fetching: Fetching | None
    read_committed: bool
    check_crcs: bool
    skip_corrupt: bool
    fail_on_data_loss: bool
