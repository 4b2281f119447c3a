"""The module that Spark finds by itself: the top-level module `pyspark_understudy` of an installation.

Spark imports every module called `pyspark_*` when a session first asks for a format, and
registers the `DefaultSource` in it. The wheel puts this file there under that name.

Rule: this module must not fail. If one such module raises, Spark finds none of the others, and
does not say which one it was. Spark does not look at code from `addPyFile`; `register` does.
"""

import contextlib

with contextlib.suppress(ImportError):
    from importlib import import_module

    # The project whose session this is may have a package `pipeline`.
    DefaultSource = import_module("understudy.pipeline.source.data_source").UnderstudyDataSource

__all__ = ["DefaultSource"]
