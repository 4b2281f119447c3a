"""How a pytest of its own finds the plugin: by its entry point, or by name where it has none."""

from importlib.metadata import entry_points

INSTALLED = bool(entry_points(group="pytest11", name="understudy"))
PLUGIN = () if INSTALLED else ("-p", "understudy.pytest_plugin")
