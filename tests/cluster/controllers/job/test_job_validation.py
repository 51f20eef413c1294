"""What the API server refuses of Jobs, since no controller could keep to it."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.kinds import JOBS
from koordinator.kube.errors import ApiStatusError
from tests.cluster.controllers.running_controllers import Document, asynchronous, running_controllers

_INDEXED: Document = {"completionMode": "Indexed", "completions": 2}
_POLICY = {"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}]}


def spec_with(restart_policy: str = "Never", image: str = "busybox", **spec: Any) -> Document:
    pod = {"restartPolicy": restart_policy, "containers": [{"name": "main", "image": image}]}
    return {"template": {"spec": pod}, **spec}


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (spec_with(completionMode="Indexed", parallelism=2), "spec.completions: Required value: when completion mode"),
        (spec_with(backoffLimitPerIndex=1), "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion"),
        (spec_with(maxFailedIndexes=1, **_INDEXED), "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes"),
        (spec_with("OnFailure", podFailurePolicy=_POLICY), 'only "Never" is supported when podFailurePolicy'),
        (
            spec_with(podFailurePolicy=_POLICY, podReplacementPolicy="TerminatingOrFailed"),
            'Unsupported value: "TerminatingOrFailed": supported values: "Failed"',
        ),
    ],
)
def test_what_is_refused(spec: Document, error: str) -> None:
    @asynchronous
    async def create() -> None:
        async with running_controllers() as cluster:
            with pytest.raises(ApiStatusError) as raised:
                await cluster.create(JOBS, "work", spec)
        assert error in raised.value.message

    create()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"completionMode": "Indexed"}, "spec.completionMode"),
        ({"backoffLimitPerIndex": 1, "completionMode": "Indexed"}, "spec.backoffLimitPerIndex"),
        ({"template": spec_with(image="other")["template"]}, "spec.template"),
    ],
)
def test_what_cannot_be_changed(change: Document, field: str) -> None:
    @asynchronous
    async def patch() -> None:
        async with running_controllers() as cluster:
            await cluster.create(JOBS, "work", spec_with())
            with pytest.raises(ApiStatusError) as raised:
                await cluster.patch(JOBS, "work", {"spec": change})
        assert f"{field}: Invalid value" in raised.value.message
        assert "field is immutable" in raised.value.message

    patch()


@asynchronous
async def test_where_the_pods_go_can_be_changed_before_the_job_has_run() -> None:
    placed = {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}
    async with running_controllers() as cluster:
        await cluster.create(JOBS, "work", spec_with(suspend=True))
        await cluster.patch(JOBS, "work", {"spec": placed})
        await cluster.patch(JOBS, "work", {"spec": {"suspend": False}})
        with pytest.raises(ApiStatusError):
            await cluster.patch(JOBS, "work", {"spec": {"template": {"spec": {"nodeSelector": {"disk": "hdd"}}}}})
