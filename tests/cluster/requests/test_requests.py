"""The embedded API answers odd requests as the real kube-apiserver does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.cluster.embedded_thread import embedded_server
from tests.cluster.requests.cases import CASES
from tests.cluster.requests.exchange import Exchange, recorded

_NUMBERS = count()


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    with embedded_server(tmp_path_factory.mktemp("embedded")) as kubeconfig:
        yield Exchange(kubeconfig)


@pytest.mark.parametrize("case", CASES)
def test_odd_requests(exchange: Exchange, case: str) -> None:
    responses = exchange.play(f"odd-{next(_NUMBERS)}", CASES[case])
    requests = [str(request) for request in CASES[case]]
    assert list(zip(requests, responses, strict=True)) == list(zip(requests, recorded()[case], strict=True))
