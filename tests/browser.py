"""A page as a browser has it once all of its scripts have run."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")

QUIETLY: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium found (Debian: apt install chromium)"
)


def root_of(file: Path, profile: Path, *, width: int, dark: bool) -> str:
    """The html element as the browser has it once all scripts have run."""
    assert CHROMIUM is not None, "looked for before"
    done = subprocess.run(
        [
            CHROMIUM,
            *QUIETLY,
            *(["--force-dark-mode"] if dark else []),
            f"--user-data-dir={profile / 'profile'}",
            f"--window-size={width},900",
            "--virtual-time-budget=10000",
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    match = re.search(r"<html[^>]*>", done.stdout)
    assert match, done.stderr
    return match[0]
