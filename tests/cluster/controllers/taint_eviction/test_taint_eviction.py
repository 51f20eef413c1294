"""How long pods tolerate their nodes."""

from __future__ import annotations

import pytest

from koordinator.api.kinds import NODES, PODS
from koordinator.api.node import Taint
from koordinator.api.pod import Toleration
from koordinator.base.clock import ManualClock
from koordinator.cluster.controllers.taint_eviction.controller import TaintEvictionController
from koordinator.cluster.controllers.taint_eviction.decision import seconds_to_eviction
from koordinator.kube.interface import PatchType
from tests.cluster.controllers.running_controllers import asynchronous, running_controllers

A, B = Taint(key="a", effect="NoExecute"), Taint(key="b", effect="NoExecute")


def tolerated(key: str, seconds: int | None = None) -> Toleration:
    return Toleration(key=key, operator="Exists", toleration_seconds=seconds)


@pytest.mark.parametrize(
    ("taints", "tolerations", "seconds"),
    [
        ([], [], None),
        ([A], [], 0.0),
        ([A], [tolerated("a")], None),
        ([A], [tolerated("a", 30)], 30.0),
        ([A], [tolerated("a", -1)], 0.0),
        ([A, B], [tolerated("a", 30)], 0.0),
        ([A, B], [tolerated("a", 30), tolerated("b", 20)], 20.0),
        ([A, B], [tolerated("a"), tolerated("b", 20)], 20.0),
        ([A], [tolerated("a", 30), tolerated("a", 10)], 30.0),
        ([A], [Toleration(operator="Exists")], None),
    ],
)
def test_how_long_a_pod_may_stay(taints: list[Taint], tolerations: list[Toleration], seconds: float | None) -> None:
    assert seconds_to_eviction(taints, tolerations) == seconds


async def _evict() -> None:
    async with running_controllers(TaintEvictionController) as cluster:
        clock = cluster.api.clock
        assert isinstance(clock, ManualClock)
        await cluster.client.create(NODES, {"metadata": {"name": "n"}})
        containers = [{"name": "c", "image": "i"}]
        some = {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]}
        always = {"tolerations": [{"key": "a", "operator": "Exists"}]}
        for name, spec in (("none", {}), ("some", some), ("always", always)):
            await cluster.create(PODS, name, {"nodeName": "n", "containers": containers, **spec})
        taints = [{"key": "a", "effect": "NoExecute"}]
        await cluster.client.patch(NODES, "n", {"spec": {"taints": taints}}, PatchType.MERGE)

        def going() -> list[str]:
            return sorted(
                pod["metadata"]["name"] for pod in cluster.api.all(PODS) if "deletionTimestamp" in pod["metadata"]
            )

        await clock.advance(1)
        assert going() == ["none"]
        await clock.advance(28)
        assert going() == ["none"]
        await clock.advance(2)
        assert going() == ["none", "some"]
        await clock.advance(3600)
        assert going() == ["none", "some"]


def test_pods_are_deleted_when_their_time_is_up() -> None:
    asynchronous(_evict)()
