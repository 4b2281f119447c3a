"""What Spark finds by itself: the top-level module `pyspark_understudy` of an installation.

Spark imports every module called `pyspark_*` when a session first asks for a format, and
registers the `DefaultSource` in it. The wheel puts this file there under that name.

Rule: it must not fail. One such module that raises takes discovery from all the others, and
Spark does not say which. Code that `addPyFile` brought is not looked at: `register` does that.
"""

import contextlib

with contextlib.suppress(ImportError):
    from pipeline.source.data_source import UnderstudyDataSource as DefaultSource

__all__ = ["DefaultSource"]
