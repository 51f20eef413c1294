"""The recorded responses to odd requests are those of the real kube-apiserver: the embedded API is held to them."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.cluster.requests.cases import CASES
from tests.cluster.requests.exchange import Exchange, recorded


@pytest.mark.parametrize("case", CASES)
def test_odd_requests(real_cluster: Path, case: str) -> None:
    responses = Exchange(real_cluster).play(f"odd-{uuid.uuid4().hex[:8]}", CASES[case])
    requests = [str(request) for request in CASES[case]]
    assert list(zip(requests, responses, strict=True)) == list(zip(requests, recorded()[case], strict=True))
