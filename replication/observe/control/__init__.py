"""Control over HTTP, for `understudy up --control PORT` (`docs/control.md` lists it).

    declared     one operation: its path, its request and response, its refusals, its description
    operations   all operations, in the order of the documentation

Rule 1: an operation is declared once. Its route and its description are derived from that.

Rule 2: an invalid request is refused with one line that names the field, and changes nothing.
"""

from replication.observe.control.declared import NotThereError
from replication.observe.control.operations import control_routes, fault_routes

__all__ = ["NotThereError", "control_routes", "fault_routes"]
