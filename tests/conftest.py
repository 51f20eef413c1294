"""What holds for all tests: generated examples are the same in every run, so that a failure is nobody's bad luck."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "deterministic", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("deterministic")
