"""One name for all of understudy, also where `storage` or `pipeline` is a package of yours.

    from understudy import ThreadedCluster, get_session         what most programs need
    from understudy.replication.errors import KafkaError        any module of the four packages

The packages `storage`, `replication`, `scenarios` and `pipeline` keep their names. A project may
have a package of such a name itself: Python then finds only one of the two. `understudy.storage`
is ours in any case (`understudy/own_modules.py`). The command `understudy`, `python -m understudy`,
the pytest plugin and Spark's data source use these names.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 11):  # noqa: UP036 - a checkout is not looked at by pip
    sys.exit("understudy needs Python 3.11 or newer")

from understudy.own_modules import install

if TYPE_CHECKING:
    from pipeline import register
    from pipeline.session import get_session
    from replication import Cluster, __version__, open_cluster
    from replication.client import Admin, Consumer, Producer
    from replication.errors import ConfigError, ErrorCode, KafkaError, UnderstudyError
    from replication.testing import KafkaContainer, ThreadedCluster

__all__ = [
    "Admin",
    "Cluster",
    "ConfigError",
    "Consumer",
    "ErrorCode",
    "KafkaContainer",
    "KafkaError",
    "Producer",
    "ThreadedCluster",
    "UnderstudyError",
    "__version__",
    "get_session",
    "open_cluster",
    "register",
]

_MODULES = {
    "Admin": "replication.client",
    "Cluster": "replication",
    "ConfigError": "replication.errors",
    "Consumer": "replication.client",
    "ErrorCode": "replication.errors",
    "KafkaContainer": "replication.testing",
    "KafkaError": "replication.errors",
    "Producer": "replication.client",
    "ThreadedCluster": "replication.testing",
    "UnderstudyError": "replication.errors",
    "__version__": "replication",
    "get_session": "pipeline.session",
    "open_cluster": "replication",
    "register": "pipeline",
}

install()


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: a consumer needs no cluster."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
