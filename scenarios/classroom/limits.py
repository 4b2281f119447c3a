"""The limits of a run in the page: what a request may ask for, and what its run may use.

A request has at most `declared.MOST_BYTES`. A story of ours has at most 9,000 bytes, and takes less
than 60 virtual seconds, two seconds of the processor's time, 120 MB, and half a megabyte of result.
"""

from typing import Final

MOST_WAITING: Final = 4
LONGEST_VIRTUAL_SECONDS: Final = 600.0
MOST_CPU_SECONDS: Final = 60.0
RUN_SECONDS: Final = 120.0
MOST_MEMORY_BYTES: Final = 1 << 30
MOST_RESULT_BYTES: Final = 8 << 20
