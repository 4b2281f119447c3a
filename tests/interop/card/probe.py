"""One feature of one client, in a process of its own, so that a client that hangs can be killed.

python -m tests.interop.card.probe CLIENT FEATURE SERVERS TOPIC

For a way in, SERVERS is an `Entrance` as JSON.
"""

import importlib
import sys

from tests.interop.card.features import CLIENTS
from tests.interop.card.secured import WAYS, Entrance


def main(client: str, feature: str, servers: str, topic: str) -> None:
    module = importlib.import_module(CLIENTS[client])
    if feature in WAYS:
        getattr(module, WAYS[feature].probe)(Entrance.from_json(servers), topic)
    else:
        getattr(module, feature)(servers, topic)


if __name__ == "__main__":
    main(*sys.argv[1:])
