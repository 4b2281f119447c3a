"""The quick part of the suite, on every other supported Python that this machine has.

Looks on PATH and among pyenv's versions, makes an environment for each (`.venv-3.12`),
and says which it did not find. Exits non-zero where one of them fails. With `--newest` only
the newest that is found has its turn: together with the oldest, which `make test` runs on,
that is what most differences show on.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SUPPORTED = ((3, 11), (3, 12), (3, 13), (3, 14))
ROOT = Path(__file__).resolve().parent.parent
QUICK = "not (client or spark or slow or interop or deep)"


def candidates(version: tuple[int, int]) -> list[str]:
    """Commands that may be this Python; a pyenv shim may answer for a version it lacks."""
    name = f"python{version[0]}.{version[1]}"
    found = [shutil.which(name)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found += sorted(map(str, pyenv.glob(f"versions/{version[0]}.{version[1]}.*/bin/{name}")))
    return [command for command in found if command]


def find(version: tuple[int, int]) -> str | None:
    probe = f"import sys, venv; sys.exit(sys.version_info[:2] != {version})"
    for command in candidates(version):
        if subprocess.run([command, "-c", probe], capture_output=True, check=False).returncode == 0:
            return command
    return None


def make_environment(
    python: str,
    environment: Path,
    *,
    extras: str = "arrow,http",
    constraints: Path = ROOT / "constraints.txt",
) -> Path:
    """The interpreter of an environment that has the test group installed."""
    inside = environment / "bin" / "python"
    ready = environment / ".ready"
    wanted = max((ROOT / name).stat().st_mtime for name in ("pyproject.toml", "constraints.txt"))
    if ready.exists() and ready.stat().st_mtime >= wanted:
        return inside
    subprocess.run([python, "-m", "venv", "--clear", str(environment)], check=True)
    pip = [str(inside), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--upgrade", "pip>=25.1"], check=True)
    install = [*pip, "-c", str(constraints), "--group", "test", "-e", f".[{extras}]"]
    subprocess.run(install, check=True, cwd=ROOT)
    ready.touch()
    return inside


def passes_on(name: str, python: str) -> bool:
    print(f"Python {name}: {QUICK}", flush=True)
    inside = make_environment(python, ROOT / f".venv-{name}")
    command = [str(inside), "-m", "pytest", "-q", "-n", "auto", "-m", QUICK]
    return subprocess.run(command, check=False, cwd=ROOT).returncode == 0


def main(*, newest: bool) -> int:
    others = [version for version in SUPPORTED if version != sys.version_info[:2]]
    found = {f"{major}.{minor}": find((major, minor)) for major, minor in others}
    missing = [name for name, python in found.items() if python is None]
    there = [(name, python) for name, python in found.items() if python is not None]
    failed = [each[0] for each in there[-1 if newest else 0 :] if not passes_on(*each)]
    if missing:
        print(f"not found on this machine, so not tested: Python {', '.join(missing)}")
    if failed:
        print(f"FAILED on Python {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(newest="--newest" in sys.argv[1:]))
