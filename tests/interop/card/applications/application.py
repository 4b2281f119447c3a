"""An application of the card: how it is made here, its version, and its runs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Generic, TypeVar

import attrs

from tests.interop.card.applications.stage import Stage

E = TypeVar("E")

APPLICATIONS: Final = {
    "streams": "tests.interop.card.applications.streams",
    "connect": "tests.interop.card.applications.connect",
    "mirrormaker": "tests.interop.card.applications.mirror_maker",
    "registry": "tests.interop.card.applications.registry",
    "flink": "tests.interop.card.applications.flink",
    "spark": "tests.interop.card.applications.spark",
    "quixstreams": "tests.interop.card.applications.quix",
    "faststream": "tests.interop.card.applications.fast_stream",
    "faust": "tests.interop.card.applications.faust_streaming",
    "bytewax": "tests.interop.card.applications.bytewax_flow",
    "kcat": "tests.interop.card.applications.kcat_pipe",
    "viewer": "tests.interop.card.applications.viewer",
}
"""The module of each application, by the name that `--only` takes; it has an `APPLICATION`."""


@attrs.frozen
class Run(Generic[E]):
    """One row of the card: what is done, and the function that does it on a stage.

    The function returns a sentence with the counts, and raises where the result is not right.
    """

    what: str
    work: Callable[[Stage, E], str]


@attrs.frozen
class Application(Generic[E]):
    """An application and its runs.

    Args:
        title: its name on the card.
        make: makes its environment in a directory; raises NotToBeHadError.
        version: asks the environment for the version.
        runs: what is done with it, by the name of the promise.
        known: why a promise is not kept, at Apache Kafka's brokers either.
    """

    title: str
    make: Callable[[Path], E]
    version: Callable[[E], str]
    runs: Mapping[str, Run[E]]
    known: Mapping[str, str] = attrs.field(factory=dict)
