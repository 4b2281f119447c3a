"""The probes of the conformance card as parameters of tests, for the clients that need no JVM."""

import gc
import importlib
from collections.abc import Mapping
from typing import Any

import pytest

from tests.interop.card.features import CLIENTS

MODULES = {name: importlib.import_module(path) for name, path in CLIENTS.items() if name != "java"}

# Clients leave sockets to the garbage collector.
LEAVES_SOCKETS = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def forget_sockets() -> None:
    """Have the garbage collector close them now: a later test does not ignore the warnings."""
    gc.collect()


# Each of these waits for several seconds.
LONG = {
    "reauthentication",
    "new_group_protocol",
    "static_member",
    "kafka-python-cooperative",
    "kafka-python-group_shares",
    "kcat-wrong_password",
}


def probes(functions: Mapping[str, str]) -> list[Any]:
    """Return each client with each name in `functions` whose probe its module has.

    A probe that is known to fail is left out; one whose client is not installed is skipped. Of
    each name one stock client is tried by `make test`, in turn, and the others are `deep`.
    """
    found = [
        (name, client)
        for name, function in functions.items()
        for client, module in MODULES.items()
        if function in vars(module) and name not in getattr(module, "KNOWN", {})
    ]
    stock = {each for each, module in MODULES.items() if module.VERSION} - {"ours"}
    quick = set()
    for turn, name in enumerate(functions):
        able = [each for each in found if each[0] == name and each[1] in stock]
        short = [each for each in able if not {name, f"{each[1]}-{name}"} & LONG]
        quick |= {short[turn % len(short)]} if short else set()
    return [
        pytest.param(
            client,
            name,
            id=f"{client}-{name}",
            marks=[
                *([] if (name, client) in quick else [pytest.mark.deep]),
                pytest.mark.skipif(
                    MODULES[client].VERSION is None, reason=f"{client} is not installed"
                ),
            ],
        )
        for name, client in found
    ]
