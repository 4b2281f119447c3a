"""How `make docs` makes the site: Sphinx, MyST and furo over the pages as they stand.

Rule 1: a page reads well on GitHub first. It is plain Markdown; what only a site has (the
contents at its side, links where a page names another) is made by `_site.py`.

Rule 2: `index.md` lists the pages under its headings, and each list becomes a part of the
contents. A page that nobody has listed stands under Reference, and breaks nothing.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

project = "understudy"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "_site"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "understudy"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_last_updated_fmt = None
highlight_language = "text"  # a fence without a language is a drawing

myst_heading_anchors = 4
suppress_warnings = ["ref.python"]  # two packages may each have an OffsetOutOfRangeError

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_use_rtype = False
