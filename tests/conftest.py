"""What holds for all tests: generated examples are the same in every run, so that a failure is nobody's bad luck.

`make test-long` explores: its profile draws other examples in every run, ten times as many where a test does not say
how many it needs, and a failure prints what reproduces it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_LONG = 10 * settings().max_examples

settings.register_profile(
    "deterministic", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "exploring",
    derandomize=False,
    max_examples=_LONG,
    print_blob=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("deterministic")
