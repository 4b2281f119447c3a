"""Hypothesis, for all tests: the same examples in every run, and no deadline on a busy machine."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

repeatable = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("suite", repeatable, max_examples=25)
# `make deep` chooses it with --hypothesis-profile.
settings.register_profile("deep", repeatable, max_examples=200)
settings.load_profile("suite")
