"""Whoever tries binding admission by a dry run sees in the log and in a metric who would be refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.api.kinds import PODS
from koordinator.manager.options import Options
from koordinator.manager.webhook.pod.binding import BindingAdmissionSettings
from tests.manager.broken_input.admission import Admission
from tests.manager.broken_input.bench import ManagerBench, pod
from tests.manager.webhook.reviews import answered, review

DRY_RUN = BindingAdmissionSettings(user_names=("koord-scheduler",), namespaces=("*",), dry_run=True)
BINDING: dict[str, Any] = {
    "resource": {"group": "", "version": "v1", "resource": "pods"},
    "subResource": "binding",
    "name": "web",
    "namespace": "default",
    "userInfo": {"username": "other-scheduler"},
}


def test_a_dry_run_logs_and_counts_who_would_be_refused(caplog: pytest.LogCaptureFixture) -> None:
    bench = ManagerBench()
    bench.cluster.put(PODS, pod("web"))

    async def scenario() -> None:
        admission = Admission(bench, Options(binding_admission=DRY_RUN))
        async with admission.informers.started(5):
            body = await admission.webhooks["/validate-pod-binding"].respond(review(**BINDING))
        assert answered(body)["allowed"]
        decisions = "koord_manager_webhook_binding_admission_decisions_total"
        assert admission.metrics.registry.get_sample_value(decisions, {"decision": "dry_run"}) == 1

    asyncio.run(scenario())
    (message,) = [record.getMessage() for record in caplog.records if "binding" in record.getMessage()]
    assert message.startswith("binding of pod default/web by other-scheduler: allowed by --binding-admission-dry-run")
