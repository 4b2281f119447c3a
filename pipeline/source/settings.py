"""What all tasks of a read have in common; it travels to the executors with the reader."""

import attrs

from pipeline.source.columns import Projection
from pipeline.source.filters import Narrowing
from pipeline.source.options import Fetching


@attrs.frozen(kw_only=True)
class ReadSettings:
    """Which columns, which batches, and what is to become of what is wrong."""

    projection: Projection
    narrowing: Narrowing
    fetching: Fetching | None
    read_committed: bool
    check_crcs: bool
    skip_corrupt: bool
    fail_on_data_loss: bool
