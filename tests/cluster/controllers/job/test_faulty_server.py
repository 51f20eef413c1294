"""A Job on an API server that fails again and again: each pod is counted once all the same."""

from __future__ import annotations

from random import Random

import pytest

from koordinator.api.kinds import JOBS, PODS
from koordinator.base.clock import ManualClock
from koordinator.cluster.controllers.job.controller import JobController
from koordinator.kube.errors import ApiStatusError, TransportError
from tests.cluster.controllers.running_controllers import Cluster, asynchronous, running_controllers
from tests.in_memory_api import NO_FAULT, ApiRequest, InMemoryApi


class Faults:
    """A share of the writes to Jobs and pods fails, before they are done or behind them; creations only before, as
    nothing can tell afterwards that a pod was created."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def __call__(self, request: ApiRequest, done: bool) -> Exception | None:
        if request.plural not in ("jobs", "pods") or request.verb not in ("create", "patch", "delete"):
            return None
        if self._random.random() > 0.2 or (done and request.verb == "create"):
            return None
        return TransportError("connection reset") if done else ApiStatusError(500, "InternalError", "etcd is away")


@pytest.mark.parametrize("seed", range(5))
def test_each_pod_is_counted_once(seed: int) -> None:
    @asynchronous
    async def scenario() -> None:
        clock = ManualClock()
        api = InMemoryApi(clock)
        pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
        async with running_controllers(JobController, api=api) as cluster:
            await cluster.create(JOBS, "work", {"completions": 6, "parallelism": 3, "template": {"spec": pod}})
            api.fault = Faults(seed)
            for _ in range(60):
                # Long enough for every pause after a failure, so that each try has its turn.
                await clock.advance(31.0)
                await _succeed(cluster)
            api.fault = NO_FAULT
            await clock.advance(31.0)
            status = api.document(JOBS, "work", "default")["status"]
        succeeded = sum(each["status"].get("phase") == "Succeeded" for each in api.all(PODS))
        assert (status["succeeded"], succeeded) == (6, 6)
        assert [each["type"] for each in status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
        assert not any(each["metadata"].get("finalizers") for each in api.all(PODS))

    scenario()


async def _succeed(cluster: Cluster) -> None:
    fault, cluster.api.fault = cluster.api.fault, NO_FAULT
    for pod in cluster.live_pods():
        await cluster.set_phase(pod, "Succeeded")
    cluster.api.fault = fault
