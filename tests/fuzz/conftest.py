"""How many broken things there are, and which."""

from __future__ import annotations

import time

import pytest

_FEW = 40
_MANY = 10_000


@pytest.fixture(params=[pytest.param(_FEW, id="few"), pytest.param(_MANY, id="many", marks=pytest.mark.slow)])
def seeds(request: pytest.FixtureRequest) -> range:
    """The same forty in `make test`; ten thousand others in each `make test-long`, whose seed they begin with."""
    count: int = request.param
    if count == _FEW:
        return range(count)
    given = request.config.getoption("hypothesis_seed", None)
    first = int(given) if given is not None else int(time.time())
    return range(first, first + count)
