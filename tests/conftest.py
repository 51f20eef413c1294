"""What holds for all tests: generated examples are the same in every run, so that a failure is nobody's bad luck.

They are few, so that `make test` stays quick. `make test-long` explores: its profile draws other examples in every run,
many more where a test does not say how many it needs, and a failure prints what reproduces it.
"""

from __future__ import annotations

import gc
import logging

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

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
# Hypothesis also tries the constants of every module that is loaded. Which these are depends on the tests that ran
# before in the same process, and so would the examples of a test.
providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """A program that a test ran in this process has set up logging, which would go to a closed file from now on."""
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]
    root.setLevel(logging.WARNING)


def pytest_collection_finish() -> None:
    """Thousands of collected tests live until the end; the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
