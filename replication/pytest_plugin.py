"""The pytest plugin by its former name, for `-p replication.pytest_plugin`."""

from understudy.pytest_plugin import *  # noqa: F403
