"""DefaultEvictor: which pods are protected, and the requests that it sends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.descheduler.configuration.arguments import make_arguments
from koordinator.descheduler.default_evictor import DefaultEvictor, DefaultEvictorArgs
from koordinator.kube.errors import ApiStatusError
from tests.descheduler.clusters import RecordedEvents, make_handle, make_node, make_pod, make_snapshot
from tests.kube.fake_client import not_found


class EvictingClient:
    """Answers the requests of the plugin."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.evictions: list[tuple[str, dict[str, Any]]] = []

    async def create(self, kind: Any, body: Any, namespace: str, *, name: str, subresource: str) -> None:
        if self.error is not None:
            raise self.error
        self.evictions.append((f"{kind.plural}/{namespace}/{name}/{subresource}", body))

    async def raw(self, method: str, path: str) -> bytes:
        if self.error is not None:
            raise self.error
        return b"{}"


def make_evictor(client: object = None, recorder: object = None, **args: Any) -> DefaultEvictor:
    made, _ = make_arguments("DefaultEvictor", DefaultEvictorArgs, args, "args")
    return DefaultEvictor(made, make_handle(client=client, recorder=recorder))


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
    evictor = make_evictor(EvictingClient(), priorityThreshold={"value": 100})
    asyncio.run(evictor.start())
    refused = [
        priority for priority in (None, 99, 100) if evictor.filter(make_pod("web", "a", spec={"priority": priority}))
    ]
    assert refused == [100]


def test_node_fit_is_asked_just_before_the_eviction() -> None:
    evictor = make_evictor(nodeFit=True, nodeSelector="pool=x")
    nodes = [make_node("a"), make_node("b", cpu="1", labels={"pool": "x"}), make_node("c", cpu="8")]
    asyncio.run(evictor.prepare(make_snapshot(nodes)))
    small, large = (make_pod(name, "a", requests={"cpu": cpu}) for name, cpu in (("small", "1"), ("large", "2")))
    assert not evictor.pre_eviction_filter(small)
    assert "does not fit on any other node" in evictor.pre_eviction_filter(large)[0]


def test_an_eviction_is_bound_to_the_pod_and_told_in_an_event() -> None:
    client, events = EvictingClient(), RecordedEvents()
    result = asyncio.run(make_evictor(client, events).evict(make_pod("web", "a"), "LowNodeLoad", "too hot", None))
    assert result.evicted
    ((path, body),) = client.evictions
    assert path == "pods/default/web/eviction"
    assert body["deleteOptions"]["preconditions"] == {"uid": "uid-web"}
    assert events.notes == [("web", "Descheduled", "pod evicted by too hot")]


def test_options_of_another_pod_do_not_take_the_eviction_there() -> None:
    client = EvictingClient()
    options = convert({"gracePeriodSeconds": 5, "preconditions": {"uid": "uid-other"}}, DeleteOptions)
    asyncio.run(make_evictor(client, RecordedEvents()).evict(make_pod("web", "a"), "LowNodeLoad", "too hot", options))
    ((_, body),) = client.evictions
    assert (body["deleteOptions"]["preconditions"], body["deleteOptions"]["gracePeriodSeconds"]) == (
        {"uid": "uid-web"},
        5,
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ApiStatusError(429, "TooManyRequests", "budget"), 'error when evicting pod (ignoring) "web": budget'),
        (not_found("web"), 'pod not found when evicting "web": web not found'),
    ],
)
def test_an_eviction_that_fails_is_no_exception(error: ApiStatusError, text: str) -> None:
    events = RecordedEvents()
    evictor = make_evictor(EvictingClient(error), events)
    result = asyncio.run(evictor.evict(make_pod("web", "a"), "LowNodeLoad", "too hot", None))
    assert not result.evicted
    assert result.message.startswith(text)
    assert not events.notes


def test_a_server_without_evictions_ends_the_program() -> None:
    with pytest.raises(KoordinatorError, match="server does not support eviction policy"):
        asyncio.run(make_evictor(EvictingClient(not_found())).start())


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
