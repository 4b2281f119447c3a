"""`tests/plugin/test_suites.py` runs the tests of these folders, each in a pytest of its own."""

collect_ignore_glob = ["*"]
