"""How many broken things there are, and which."""

from __future__ import annotations

import time

import pytest

_FEW = 60
_FEW_OBJECTS = 20
"""One batch: what takes long is to start a program for each kind."""
_MANY = 10_000


@pytest.fixture(params=[pytest.param(_FEW, id="few"), pytest.param(_MANY, id="many", marks=pytest.mark.slow)])
def seeds(request: pytest.FixtureRequest) -> range:
    """The same few in `make test`; ten thousand others in each `make test-long`, whose seed they begin with."""
    return _seeds(request)


@pytest.fixture(params=[pytest.param(_FEW_OBJECTS, id="few"), pytest.param(_MANY, id="many", marks=pytest.mark.slow)])
def seeds_of_objects(request: pytest.FixtureRequest) -> range:
    """Likewise."""
    return _seeds(request)


def _seeds(request: pytest.FixtureRequest) -> range:
    count: int = request.param
    if count < _MANY:
        return range(count)
    given = request.config.getoption("hypothesis_seed", None)
    first = int(given) if given is not None else int(time.time())
    return range(first, first + count)
