"""DefaultEvictor: which pods are protected, and the requests that it sends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from koordinator.api.codec import convert, to_document
from koordinator.api.document import Document
from koordinator.api.kinds import POD_DISRUPTION_BUDGETS, PODS
from koordinator.api.modification import EVICTED, Cause, Modification
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.descheduler.configuration.arguments import make_arguments
from koordinator.descheduler.default_evictor import DefaultEvictor
from koordinator.descheduler.default_evictor_arguments import DefaultEvictorArgs
from koordinator.descheduler.framework import EvictionResult
from tests.descheduler.clusters import make_handle, make_node, make_pod, make_snapshot
from tests.in_memory_api import InMemoryApi
from tests.recorded_events import RecordedEvents


def make_evictor(client: object = None, recorder: RecordedEvents | None = None, **args: Any) -> DefaultEvictor:
    made, _ = make_arguments("DefaultEvictor", DefaultEvictorArgs, args, "args")
    return DefaultEvictor(made, make_handle(client=client, recorder=recorder))


@dataclass(frozen=True)
class Evicted:
    """``left``: the metadata of the pod afterwards."""

    result: EvictionResult
    left: Document
    notes: list[tuple[str, str, str]]
    records: list[Modification]


BUDGET = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
EMPTY_DIR = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
DAEMON = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1"}]
EVICTABLE = {"descheduler.alpha.kubernetes.io/evict": ""}
RATHER_NOT = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}


@pytest.mark.parametrize(
    ("args", "pod", "refused"),
    [
        ({}, {}, False),
        ({}, {"owner": None}, True),
        ({"evictFailedBarePods": True}, {"owner": None}, True),
        ({"evictFailedBarePods": True}, {"owner": None, "status": {"phase": "Failed"}}, False),
        ({}, {"owner": None, "annotations": EVICTABLE}, False),
        ({}, {"spec": EMPTY_DIR}, True),
        ({"evictLocalStoragePods": True}, {"spec": EMPTY_DIR}, False),
        ({"podProtections": {"defaultDisabled": ["PodsWithLocalStorage"]}}, {"spec": EMPTY_DIR}, False),
        ({}, {"spec": CLAIM}, False),
        ({"ignorePvcPods": True}, {"spec": CLAIM}, True),
        ({"podProtections": {"extraEnabled": ["PodsWithPVC"]}}, {"spec": CLAIM}, True),
        ({}, {"ownerReferences": DAEMON}, True),
        ({"evictDaemonSetPods": True}, {"ownerReferences": DAEMON}, False),
        ({}, {"spec": {"priority": 2 * 10**9}}, True),
        ({"evictSystemCriticalPods": True}, {"spec": {"priority": 2 * 10**9}}, False),
        ({}, {"annotations": {"kubernetes.io/config.mirror": ""}}, True),
        ({}, {"annotations": {"kubernetes.io/config.source": "file"}}, True),
        ({}, {"annotations": {"kubernetes.io/config.source": "api"}}, False),
        ({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
        ({}, {"annotations": RATHER_NOT}, False),
        ({"noEvictionPolicy": "Mandatory"}, {"annotations": RATHER_NOT}, True),
        ({"labelSelector": {"matchLabels": {"app": "a"}}}, {"labels": {"app": "a"}}, False),
        ({"labelSelector": {"matchLabels": {"app": "a"}}}, {}, True),
        ({"minPodAge": "5m"}, {}, True),
        ({"minPodAge": "5m"}, {"status": {"startTime": "2026-01-01T11:55:00Z"}}, False),
        ({"minPodAge": "5m"}, {"status": {"startTime": "2026-01-01T11:55:01Z"}}, True),
        (
            {"podProtections": {"extraEnabled": ["PodsWithResourceClaims"]}},
            {"spec": {"resourceClaims": [{"name": "gpu"}]}},
            True,
        ),
    ],
)
def test_protected_pods(args: dict[str, Any], pod: dict[str, Any], refused: bool) -> None:
    assert bool(make_evictor(**args).filter(make_pod("web", "a", **pod))) is refused


def test_priority_threshold() -> None:
    evictor = make_evictor(InMemoryApi().client(), priorityThreshold={"value": 100})
    asyncio.run(evictor.start())
    refused = [
        priority for priority in (None, 99, 100) if evictor.filter(make_pod("web", "a", spec={"priority": priority}))
    ]
    assert refused == [100]


@pytest.mark.parametrize(("leaving", "refused"), [(0, False), (1, True)])
def test_pods_that_are_terminating_are_no_replicas(leaving: int, refused: bool) -> None:
    handle = make_handle()
    plugin = DefaultEvictor(DefaultEvictorArgs(min_replicas=3), handle)
    pods = [make_pod(f"web-{number}", "a") for number in range(3 - leaving)]
    pods += [make_pod(f"gone-{n}", "a", deletionTimestamp="2026-01-01T12:00:30Z") for n in range(leaving)]
    cache = handle.informers.informer(PODS).cache
    cache.begin_replace(authoritative=True)
    cache.replace_page(pods, [])
    cache.end_replace("1")
    assert bool(plugin.filter(pods[0])) is refused


def test_node_fit_is_called_just_before_the_eviction() -> None:
    evictor = make_evictor(nodeFit=True, nodeSelector="pool=x")
    nodes = [make_node("a"), make_node("b", cpu="1", labels={"pool": "x"}), make_node("c", cpu="8")]
    asyncio.run(evictor.prepare(make_snapshot(nodes)))
    small, large = (make_pod(name, "a", requests={"cpu": cpu}) for name, cpu in (("small", "1"), ("large", "2")))
    assert not evictor.pre_eviction_filter(small)
    assert "does not fit on any other node" in evictor.pre_eviction_filter(large)[0]


def evicting(*stored: Pod, options: DeleteOptions | None = None, allowed: int | None = None) -> Evicted:
    """The pod ``web`` is evicted where the API server has ``stored``, and a budget that allows so many."""
    api, events = InMemoryApi(), RecordedEvents()
    for pod in stored:
        api.put(PODS, to_document(pod))
    if allowed is not None:
        api.put(POD_DISRUPTION_BUDGETS, {**BUDGET, "status": {"disruptionsAllowed": allowed, "observedGeneration": 1}})

    async def scenario() -> EvictionResult:
        evictor = make_evictor(api.client(), events)
        return await evictor.evict(make_pod("web", "a"), "LowNodeLoad", "too hot", options)

    result = asyncio.run(scenario())
    left = api.found(PODS, "web", "default")
    return Evicted(result, left["metadata"] if left is not None else {}, events.notes, events.records)


def test_an_eviction_ends_the_pod_and_is_reported_in_an_event() -> None:
    pod = make_pod("web", "a", labels={"app": "web"}, spec={"terminationGracePeriodSeconds": 30})
    found = evicting(pod, allowed=1)
    assert found.result.evicted
    assert found.left["deletionTimestamp"]
    assert found.notes == [("web", "Descheduled", "pod evicted by too hot")]
    (record,) = found.records
    assert (record.action, record.node) == (EVICTED, "a")
    assert record.cause == Cause(code="LowNodeLoad", text="too hot")


def test_a_namesake_of_the_pod_is_not_evicted() -> None:
    found = evicting(make_pod("web", "a", uid="uid-namesake"))
    assert not found.result.evicted
    assert "deletionTimestamp" not in found.left


def test_options_of_another_pod_do_not_take_the_eviction_there() -> None:
    options = convert({"gracePeriodSeconds": 5, "preconditions": {"uid": "uid-other"}}, DeleteOptions)
    found = evicting(make_pod("web", "a"), options=options)
    assert found.result.evicted
    assert found.left["deletionGracePeriodSeconds"] == 5


def test_an_eviction_that_a_budget_refuses_is_no_exception() -> None:
    found = evicting(make_pod("web", "a", labels={"app": "web"}), allowed=0)
    assert not found.result.evicted
    refused = "Cannot evict pod as it would violate the pod's disruption budget."
    assert found.result.message.startswith(f'error when evicting pod (ignoring) "web": {refused}')
    assert not found.notes


def test_an_eviction_of_a_pod_that_has_gone_is_no_exception() -> None:
    found = evicting()
    assert not found.result.evicted
    assert found.result.message.startswith('pod not found when evicting "web": pods "web" not found')
    assert not found.notes


def test_a_server_without_evictions_ends_the_program() -> None:
    api = InMemoryApi(without_groups=frozenset({"policy"}))
    with pytest.raises(KoordinatorError, match="server does not support eviction policy"):
        asyncio.run(make_evictor(api.client()).start())


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"priorityThreshold": {"value": 1, "name": "high"}}, "args.priorityThreshold"),
        ({"noEvictionPolicy": "Never"}, "args.noEvictionPolicy"),
        ({"nodeSelector": "a b"}, "args.nodeSelector"),
        ({"podProtections": {"extraEnabled": ["DaemonSetPods"]}}, "args.podProtections.extraEnabled[0]"),
        ({"podProtections": {"extraEnabled": ["PodsWithPVC"]}, "ignorePvcPods": True}, "args.podProtections"),
        (
            {"podProtections": {"defaultDisabled": ["DaemonSetPods", "DaemonSetPods"]}},
            "args.podProtections.defaultDisabled[1]",
        ),
        ({"minReplicas": -1}, "args.minReplicas"),
    ],
)
def test_arguments_that_cannot_be_used(args: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make_evictor(**args)
    assert caught.value.field == field
