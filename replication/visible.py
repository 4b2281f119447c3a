r"""Foreign text (names, messages, records) in a form that is safe on a terminal.

    ESC [ 2 J    clears the screen        shown as    \u001b[2J
    U+202E       reverses the text after it           \u202e

Escaped are control characters (C0, DEL, C1) except newlines and tabs, characters that change the
direction of text, line separators other than newline, and surrogates, which have no bytes. The form
is that of JSON, so JSON text keeps its meaning.
"""

import re
from typing import Final

_UNSAFE: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff"
)  # fmt: skip
_IN_TEXT: Final = re.compile(f"[{_UNSAFE}]")
_IN_A_LINE: Final = re.compile(f"[{_UNSAFE}\t\n]")


def visible(text: str) -> str:
    """Return `text` without characters that affect a terminal."""
    return _IN_TEXT.sub(_escaped, text)


def visible_line(text: str) -> str:
    """Return `text` as one line: newlines and tabs are escaped too."""
    return _IN_A_LINE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
