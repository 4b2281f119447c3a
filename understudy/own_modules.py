"""The modules `understudy.storage`, `understudy.replication`, ...: our packages under names of their own.

    import understudy.storage.types
        all four packages are ours on this path   the module `storage.types` itself
        a project's own hides one of them         our file, loaded as `understudy.storage.types`

Rule 1: which of the two holds is decided once in a process, when the first such module is imported,
by what an `import` of the four names finds then. So there is one copy of each class.

Rule 2: our files import one another as `storage` and `replication`. Loaded under the other names,
they have an `__import__` of their own (in the `__builtins__` of each module, where CPython's
import statement looks for it), which puts `understudy.` before our packages. The bytecode stays
the same, so it is read from the same .pyc files. A string for `import_module` is not translated:
`replication.own_module` is for those.

Rule 3: pytest rewrites the assert statements of every package of a distribution that has a plugin,
which costs seconds. The finder stands before pytest's, so our modules are loaded as they are.
"""

import builtins
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

PACKAGES = ("storage", "replication", "scenarios", "pipeline")
UMBRELLA = "understudy"
HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH120, PTH100 - may lie in a zip


def install() -> None:
    """Put the finder of our modules first."""
    if not any(isinstance(each, OwnModules) for each in sys.meta_path):
        sys.meta_path.insert(0, OwnModules())


@cache
def hidden_packages() -> tuple[str, ...]:
    """Return which of our packages an `import` would not find, because others have their names."""
    return tuple(name for name in PACKAGES if not _is_own(name))


def _is_own(name: str) -> bool:
    loaded = sys.modules.get(name)
    spec = find_spec(name) if loaded is None else loaded.__spec__
    places = () if spec is None else spec.submodule_search_locations or ()
    return any(os.path.abspath(each) == os.path.join(HOME, name) for each in places)  # noqa: PTH100, PTH118


class OwnModules(MetaPathFinder):
    """The finder of our modules, under either name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        umbrella, _, name = fullname.partition(".")
        if umbrella in PACKAGES or (umbrella == UMBRELLA and not _is_in_packages(name)):
            return _found(fullname, path)  # rule 3
        if umbrella != UMBRELLA:
            return None
        if not hidden_packages():
            return ModuleSpec(fullname, _SameModule())
        return _found_apart(fullname, [HOME] if path is None or name in PACKAGES else path)


def _is_in_packages(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES


def _found(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return where the path has a module, if it is one of ours."""
    spec = PathFinder.find_spec(fullname, path)
    is_own = spec is not None and str(spec.origin or "").startswith(HOME + os.sep)
    return spec if is_own else None


def _found_apart(fullname: str, path: Sequence[str]) -> ModuleSpec | None:
    spec = PathFinder.find_spec(fullname, path)
    if spec is not None and spec.loader is not None:
        spec.loader = _LoaderApart(spec.loader)
    return spec


class _SameModule(Loader):
    """The loader of `understudy.storage` where that is `storage` itself."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = importlib.import_module(name.partition(".")[2])


class _LoaderApart(Loader):
    """The loader of one of our files under a name that begins with `understudy.` (rule 2)."""

    def __init__(self, usual: Loader) -> None:
        self._usual = usual

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._usual.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = _BUILTINS
        self._usual.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        """Return what else the usual loader can do: its source, its resources."""
        return getattr(self._usual, name)


def _import_apart(
    name: str,
    globals: Mapping[str, object] | None = None,  # noqa: A002 - the name of __import__'s argument
    locals: Mapping[str, object] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import a module for one of our files, as `__import__` does."""
    if level or not _is_in_packages(name):
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    found = builtins.__import__(f"{UMBRELLA}.{name}", globals, locals, fromlist or (), 0)
    if fromlist:
        return found
    return sys.modules[f"{UMBRELLA}.{name.partition('.')[0]}"]


_BUILTINS = {**vars(builtins), "__import__": _import_apart}
