"""The cases on the embedded API; tests/real/test_admission_webhooks.py runs the same on the real kube-apiserver."""

from __future__ import annotations

import pytest

from tests.cluster.admission_webhooks.cases import Case, cases
from tests.cluster.admission_webhooks.world import World


@pytest.mark.parametrize("case", cases().values(), ids=cases().keys())
def test_case(world: World, case: Case) -> None:
    case(world)
