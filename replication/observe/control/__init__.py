"""Control over HTTP, of `understudy up --control PORT`: what `docs/control.md` lists.

    declared     one operation: its path, what it is asked and answers, which refusals it has
    operations   all of them, in the order of the documentation
    schemas      what is asked and answered, as JSON Schema
    description  the same as OpenAPI 3.1, made of the declarations

Rule 1: an operation is declared once. Its route, its checks and its description are made of it.

Rule 2: what is not understood is refused with one line that names the field, and nothing has
changed.
"""

from replication.observe.control.declared import NotThereError
from replication.observe.control.operations import control_routes

__all__ = ["NotThereError", "control_routes"]
