"""Import hook: a module is compiled from its source as a mutant has it, and never from a cache.

It is for a process of its own, which plants one mutant before it imports anything else of ours.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

import attrs

from tests.mutants.mutant import Mutant


class MutatedLoader(SourceFileLoader):
    """Reads a module's source, and compiles what `mutant` makes of it."""

    def __init__(self, spec: ModuleSpec, mutant: Mutant) -> None:
        assert spec.origin is not None, "a module of ours is a file"
        super().__init__(spec.name, spec.origin)
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.mutant.mutated(fullname, self.get_data(path).decode())
        code: CodeType = compile(source, path, "exec", dont_inherit=True)
        return code


@attrs.frozen
class MutatedModules(MetaPathFinder):
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
    """From here on this process imports the mutant."""
    early = [module for module in mutant.modules if module in sys.modules]
    assert not early, f"imported before they were mutated: {early}"
    sys.meta_path.insert(0, MutatedModules(mutant))


def is_planted(mutant: Mutant) -> bool:
    """Whether all that it changes was imported, as it changes it."""
    loaders = (getattr(sys.modules.get(each), "__loader__", None) for each in mutant.modules)
    return all(isinstance(each, MutatedLoader) for each in loaders)
