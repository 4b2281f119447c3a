"""The probes of the conformance card as parameters of tests, for the clients that need no JVM."""

import importlib
from collections.abc import Mapping
from typing import Any

import pytest

from tests.interop.card.features import CLIENTS

MODULES = {name: importlib.import_module(path) for name, path in CLIENTS.items() if name != "java"}

PROBED = [
    pytest.mark.client,
    # Clients leave sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
# Our brokers do not serve KIP-848, and librdkafka waits for it until it is stopped.
NOT_SERVED = {"new_group_protocol"}
# Each of these waits for several seconds.
LONG = {"reauthentication", "static_member"}


def probes(functions: Mapping[str, str]) -> list[Any]:
    """Return each client with each name in `functions` whose probe its module has.

    A probe that is known to fail is left out; one whose client is not installed is skipped.
    """
    return [
        pytest.param(
            client,
            name,
            id=f"{client}-{name}",
            marks=[
                *([pytest.mark.deep] if name in LONG else []),
                pytest.mark.skipif(module.VERSION is None, reason=f"{client} is not installed"),
            ],
        )
        for client, module in MODULES.items()
        for name, function in functions.items()
        if function in vars(module) and name not in {*NOT_SERVED, *getattr(module, "KNOWN", {})}
    ]
