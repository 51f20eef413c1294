"""DefaultEvictor with ``gangPolicy: Whole``: a gang is evicted whole, counts once, or stays."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from koordinator.api.codec import convert, to_document
from koordinator.api.core import Namespace
from koordinator.api.kinds import NAMESPACES, POD_DISRUPTION_BUDGETS, PODS
from koordinator.api.pod import Pod, WorkloadReference
from koordinator.api.workload import PodDisruptionBudget
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.configuration.arguments import make_arguments
from koordinator.descheduler.default_evictor import DefaultEvictor
from koordinator.descheduler.default_evictor_arguments import DefaultEvictorArgs
from koordinator.descheduler.framework import EvictionResult
from tests.descheduler.clusters import make_handle, make_node, make_pod, make_snapshot
from tests.in_memory_api import InMemoryApi

_GANG = "gang.scheduling.koordinator.sh"


def member(number: int, minimum: int = 3, mode: str = "Strict", **changes: Any) -> Pod:
    declared = {"name": "training", "min-available": str(minimum), "mode": mode}
    annotations = {f"{_GANG}/{key}": value for key, value in declared.items()}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return make_pod(f"web-{number}", f"n{number}", annotations=annotations, status=ready, **changes)


class Bench:
    """An evictor that knows these pods, which the API server has, too."""

    def __init__(self, *pods: Pod, policy: str = "Whole", **args: Any) -> None:
        self.api = InMemoryApi()
        for pod in pods:
            self.api.put(PODS, to_document(pod))
        made, _ = make_arguments("DefaultEvictor", DefaultEvictorArgs, {"gangPolicy": policy, **args}, "args")
        handle = make_handle(client=self.api.client())
        self.evictor = DefaultEvictor(made, handle)
        self.informers = handle.informers
        self.fill(PODS, *pods)

    def fill(self, kind: Any, *objects: Any) -> None:
        cache = self.informers.informer(kind).cache
        cache.begin_replace(authoritative=True)
        cache.replace_page(list(objects), [])
        cache.end_replace("1")

    def evict(self, pod: Pod) -> EvictionResult:
        return asyncio.run(self.evictor.evict(pod, "LowNodeLoad", "too hot", None))

    @property
    def left(self) -> list[str]:
        """The pods that are not terminating."""
        found = self.api.all(PODS)
        return sorted(each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"])


def test_all_members_leave_with_one() -> None:
    members = [member(number) for number in range(3)]
    bench = Bench(*members)
    assert not bench.evictor.filter(members[0])
    assert (bench.evict(members[0]), bench.left) == (EvictionResult(True), [])


def test_the_gang_counts_once_in_a_cycle() -> None:
    members = [member(number) for number in range(3)]
    bench = Bench(*members)
    bench.evictor.plan_eviction(members[0])
    assert bench.evictor.filter(members[1]) == ["gang default/training has been evicted in this cycle"]
    asyncio.run(bench.evictor.prepare(make_snapshot([])))
    assert not bench.evictor.filter(members[1])


def test_by_default_a_member_leaves_alone() -> None:
    members = [member(number) for number in range(3)]
    bench = Bench(*members, policy="Members")
    assert (bench.evict(members[0]), bench.left) == (EvictionResult(True), ["web-1", "web-2"])


def test_a_member_that_must_not_be_evicted_keeps_all() -> None:
    first, other = member(0, 2), member(1, 2, spec={"volumes": [{"name": "scratch", "emptyDir": {}}]})
    assert Bench(first, other).evictor.filter(first) == ["gang default/training: default/web-1: pod has local storage"]


def test_a_budget_that_does_not_let_all_go_keeps_all() -> None:
    members = [member(number, labels={"app": "web"}) for number in range(3)]
    bench = Bench(*members)
    budget = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }
    bench.fill(POD_DISRUPTION_BUDGETS, convert({**budget, "status": {"disruptionsAllowed": 2}}, PodDisruptionBudget))
    result = bench.evict(members[0])
    assert result.message == ("gang default/training: the PodDisruptionBudget default/web allows 2 of the 3 evictions")
    assert bench.left == ["web-0", "web-1", "web-2"]


def test_a_member_that_is_spare_leaves_alone() -> None:
    members = [member(number, 2, "NonStrict") for number in range(3)]
    bench = Bench(*members)
    assert (bench.evict(members[0]).evicted, bench.left) == (True, ["web-1", "web-2"])


@pytest.mark.parametrize("plan", [True, False])
def test_members_that_have_left_in_the_cycle_are_not_spare_twice(plan: bool) -> None:
    """The informer shows them as they were, and later as ready and terminating."""
    members = [member(number, 2, "NonStrict") for number in range(4)]
    bench = Bench(*members)
    for each in members[:2]:
        if plan:
            bench.evictor.plan_eviction(each)
        else:
            bench.evict(each)
    assert not bench.evictor.filter(members[3])
    bench.evict(members[3])
    assert bench.left == (["web-0", "web-1"] if plan else [])


def test_members_that_are_terminating_are_not_spared_for() -> None:
    first, *others = [member(number, 2, "NonStrict") for number in range(3)]
    leaving = msgspec.structs.replace(first.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    bench = Bench(msgspec.structs.replace(first, metadata=leaving), *others)
    bench.evict(others[0])
    assert "web-2" not in bench.left


def test_pods_that_are_placed_one_by_one_leave_alone() -> None:
    """Those of Workloads, which are not read without the gate, even if no other one is ready."""
    reference = WorkloadReference("training", "workers")
    pods = [make_pod(f"web-{number}", f"n{number}", spec={"workloadRef": to_document(reference)}) for number in (0, 1)]
    bench = Bench(*pods)
    assert (bench.evict(pods[0]).evicted, bench.left) == (True, ["web-1"])


def test_all_members_must_be_in_selected_namespaces() -> None:
    together = {f"{_GANG}/groups": '["default/training","prod/training"]'}
    pods = [member(0, 1), member(1, 1)]
    pods = [
        msgspec.structs.replace(
            pod,
            metadata=msgspec.structs.replace(
                pod.metadata, namespace=namespace, annotations={**pod.metadata.annotations, **together}
            ),
        )
        for pod, namespace in zip(pods, ("default", "prod"), strict=True)
    ]
    bench = Bench(*pods, namespaceLabelSelector={"matchLabels": {"evict": "yes"}})
    selected = {"metadata": {"name": "default", "labels": {"evict": "yes"}}}
    bench.fill(NAMESPACES, convert(selected, Namespace), convert({"metadata": {"name": "prod"}}, Namespace))
    (refusal,) = bench.evictor.pre_eviction_filter(pods[0])
    assert refusal.startswith("gang default/training: prod/web-1: pod namespace do not match")


def test_each_member_must_fit_elsewhere() -> None:
    members = [member(0, 2), member(1, 2, spec={"nodeSelector": {"disk": "none-has-it"}})]
    bench = Bench(*members, nodeFit=True)
    asyncio.run(bench.evictor.prepare(make_snapshot([make_node("n9")])))
    (refusal,) = bench.evictor.pre_eviction_filter(members[0])
    assert refusal.startswith("gang default/training: default/web-1: pod does not fit on any other node")


def test_another_policy_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"args\.gangPolicy"):
        Bench(policy="Some")
