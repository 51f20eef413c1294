"""What holds for all tests: generated examples are the same in every run, so that a failure is nobody's bad luck.

They are few, so that `make test` stays quick. `make test-long` explores: its profile draws other examples in every run,
many more where a test does not say how many it needs, and a failure prints what reproduces it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "deterministic",
    derandomize=True,
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "exploring",
    derandomize=False,
    max_examples=1000,
    print_blob=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("deterministic")
