"""One feature of one client, in a process of its own, so that a client that hangs is only killed.

python -m tests.interop.card.probe CLIENT FEATURE SERVERS TOPIC
"""

import importlib
import sys

from tests.interop.card.features import CLIENTS


def main(client: str, feature: str, servers: str, topic: str) -> None:
    getattr(importlib.import_module(CLIENTS[client]), feature)(servers, topic)


if __name__ == "__main__":
    main(*sys.argv[1:])
