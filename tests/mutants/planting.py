"""Two ways to plant a mutant: in a process of its own, and in a test.

An import hook compiles a module from its source as the mutant has it, and never from a cache. It
is for a process of its own, which plants one mutant before it imports anything else of ours.

A test that needs a broken cluster plants a mutant in place: functions that are imported already
are given the code that they have in the mutant, until the test is over.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from operator import attrgetter
from types import CodeType, FunctionType, ModuleType

import attrs
import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant, path_of
from understudy.own_modules import install


class MutatedLoader(SourceFileLoader):
    """A loader that reads a module's source, and compiles what `mutant` makes of it."""

    def __init__(self, spec: ModuleSpec, mutant: Mutant) -> None:
        assert spec.origin is not None, "a module of ours is a file"
        super().__init__(spec.name, spec.origin)
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return _mutated(self.mutant, fullname)


@attrs.frozen
class MutatedModules(MetaPathFinder):
    """A finder that gives the modules which a mutant changes to a `MutatedLoader`."""

    mutant: Mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.mutant.modules:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = MutatedLoader(spec, self.mutant)
        return spec


def plant(mutant: Mutant) -> None:
    """Let this process import the mutant from here on."""
    early = [module for module in mutant.modules if module in sys.modules]
    assert not early, f"imported before they were mutated: {early}"
    install()  # what puts itself before every other finder, once
    sys.meta_path.insert(0, MutatedModules(mutant))


def is_planted(mutant: Mutant) -> bool:
    """Return whether every module that the mutant changes was imported as it changes it."""
    loaders = (getattr(sys.modules.get(each), "__loader__", None) for each in mutant.modules)
    return all(isinstance(each, MutatedLoader) for each in loaders)


def planted(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a function that plants this mutant in place."""

    def plant_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
        mutant = MUTANTS[name]
        for module_name in mutant.modules:
            module = importlib.import_module(module_name)
            was = dict(_functions(compile(path_of(module_name).read_text(), "", "exec")))
            now = dict(_functions(_mutated(mutant, module_name)))
            for path, code in was.items():
                if _acts(code) != _acts(now[path]):
                    function = attrgetter(path)(module)
                    if isinstance(function, property):
                        function = function.fget
                    assert isinstance(function, FunctionType), f"{path} cannot be changed in place"
                    monkeypatch.setattr(function, "__code__", now[path])

    plant_in_place.__name__ = name
    return plant_in_place


def _acts(code: CodeType) -> tuple[object, ...]:
    """Return what a function does, without where it stands in its file."""
    inside = [_acts(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.co_code, code.co_names, inside


def _mutated(mutant: Mutant, module: str) -> CodeType:
    path = path_of(module)
    source = mutant.mutated(module, path.read_text())
    code: CodeType = compile(source, path, "exec", dont_inherit=True)
    return code


def _functions(code: CodeType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, CodeType]]:
    """Yield the functions and methods of a module's code, by their path in it."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            inside = (*path, each.co_name)
            if each.co_flags & inspect.CO_OPTIMIZED:
                yield ".".join(inside), each
            else:  # the body of a class
                yield from _functions(each, inside)
