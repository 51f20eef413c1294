"""The cases on the embedded API; tests/real/test_admission_webhooks.py runs the same on the real kube-apiserver."""

from __future__ import annotations

import pytest

from tests.cluster.admission_webhooks.cases import Case, cases
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster


@pytest.mark.parametrize("case", cases().values(), ids=cases().keys())
def test_case(cluster: WebhookCluster, case: Case) -> None:
    case(cluster)
