"""What every test shares: determinism for Hypothesis, and a pytest to try plugins in."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

# The suite must give the same answer twice on a busy machine: no deadline, fixed examples.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("suite")
