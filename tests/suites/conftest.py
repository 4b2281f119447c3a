"""Whose tests are run by `tests/plugin/test_suites.py`, each folder in a pytest of its own."""

collect_ignore_glob = ["*"]
