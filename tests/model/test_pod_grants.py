"""What the kubelet gives pods as people have them. tests/real/test_kubelet_quotas.py holds it to a real kubelet."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.model.pod_grants import Grant, PodGrant, is_being_resized, pod_grant
from tests.real_world.pods import PODS, PodShape, pod_shape

MEBI = 1 << 20
NONE = None
LIMITS: dict[str, tuple[int | None, dict[str, int | None]]] = {
    "guaranteed": (500, {"main": 500}),
    "burstable": (1000, {"main": 1000}),
    "best-effort": (NONE, {"main": NONE}),
    "requests-alone": (NONE, {"main": NONE}),
    "partly-limited": (NONE, {"main": 500, "free": NONE}),
    "tiny": (1, {"main": 1}),
    "odd-milli-cpu": (333, {"main": 333}),
    "two-containers": (750, {"main": 500, "second": 250}),
    "sidecar": (1000, {"proxy": 500, "main": 500}),
    "two-sidecars": (1500, {"proxy": 500, "log": 500, "main": 500}),
    "unlimited-sidecar": (NONE, {"proxy": NONE, "main": 500}),
    "large-init-container": (1000, {"prepare": 1000, "main": 250}),
    "sidecar-before-init-container": (750, {"proxy": 250, "prepare": 500, "main": 250}),
    "overhead": (750, {"main": 500}),
    "pod-level-resources": (1000, {"main": 250, "free": 1000}),
    "pod-level-resources-alone": (500, {"main": 500, "second": 500}),
    "ephemeral-container": (500, {"main": 500}),
    "resized-up": (500, {"main": 500}),
    "resized-down": (250, {"main": 250}),
    "resize-in-progress": (250, {"main": 250}),
    "resize-infeasible": (250, {"main": 250}),
    "resize-deferred": (250, {"main": 250}),
    "static": (100, {"main": 100}),
    "nested-cgroups": (500, {"main": 500}),
    "batch": (NONE, {"main": NONE}),
    "pinned": (1000, {"main": 1000}),
}
"""Milli-CPU of the pod, and of its containers; what the kubelet of Kubernetes 1.35 writes in its period."""


def running(shape: PodShape) -> Pod:
    return convert(shape.running("shop", "node-1", f"uid-{shape.name}"), Pod)


def limits(grant: PodGrant) -> tuple[int | None, dict[str, int | None]]:
    return grant.pod.cpu_limit, {name: each.cpu_limit for name, each in grant.containers.items()}


@pytest.mark.parametrize("shape", PODS, ids=lambda shape: shape.name)
def test_cpu_limits_are_those_that_the_kubelet_writes(shape: PodShape) -> None:
    assert limits(pod_grant(running(shape))) == LIMITS[shape.name]


def test_a_container_without_a_request_of_its_own_has_the_shares_of_the_pods_limit() -> None:
    grant = pod_grant(running(pod_shape("pod-level-resources")))
    assert grant.containers == {"main": Grant(250, 250, 64 * MEBI), "free": Grant(1000, 1000, 256 * MEBI)}
    assert grant.pod == Grant(500, 1000, 256 * MEBI)


def test_a_resize_counts_once_the_kubelet_has_seen_it() -> None:
    """Until then the spec alone has changed, and the status says nothing of it."""
    document = pod_shape("resize-infeasible").running("shop", "node-1", "u")
    document["status"]["conditions"] = []
    document["metadata"]["generation"] = 2
    document["status"]["observedGeneration"] = 1
    assert limits(pod_grant(convert(document, Pod))) == (250, {"main": 250})
    document["status"]["observedGeneration"] = 2
    assert limits(pod_grant(convert(document, Pod))) == (500_000, {"main": 500_000})


def test_older_kubelets_say_it_in_the_status() -> None:
    document = pod_shape("resize-infeasible").running("shop", "node-1", "u")
    document["status"] |= {"conditions": [], "resize": "Infeasible"}
    assert is_being_resized(convert(document, Pod))
    assert limits(pod_grant(convert(document, Pod))) == (250, {"main": 250})


def test_a_pod_as_a_whole_is_resized() -> None:
    document = pod_shape("pod-level-resources-alone").running("shop", "node-1", "u")
    document["status"]["resources"] = copy.deepcopy(document["spec"]["resources"])
    document["spec"]["resources"]["limits"]["cpu"] = "500"
    document["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]
    assert limits(pod_grant(convert(document, Pod)))[0] == 500


AMOUNTS = st.one_of(st.none(), st.integers(1, 4000))


@given(st.lists(st.tuples(AMOUNTS, st.sampled_from(["app", "sidecar", "init"])), min_size=1, max_size=5))
def test_no_running_container_has_more_than_its_pod(parts: list[tuple[int | None, str]]) -> None:
    """Version 1 of cgroups would refuse it."""
    spec: dict[str, Any] = {"containers": [], "initContainers": []}
    for number, (milli, kind) in enumerate([*parts, (100, "app")]):
        container: dict[str, Any] = {"name": f"c{number}", "resources": {"requests": {"cpu": "1m"}}}
        if milli is not None:
            container["resources"]["limits"] = {"cpu": f"{milli}m"}
        if kind == "sidecar":
            container["restartPolicy"] = "Always"
        spec["containers" if kind == "app" else "initContainers"].append(container)
    grant = pod_grant(convert({"metadata": {"name": "p"}, "spec": spec}, Pod))
    found = [each.cpu_limit for each in grant.containers.values()]
    if None in found:
        assert grant.pod.cpu_limit is None
    else:
        assert grant.pod.cpu_limit is not None
        assert max(limit for limit in found if limit is not None) <= grant.pod.cpu_limit
        names = [each["name"] for each in spec["containers"]]
        assert sum(grant.containers[name].cpu_limit or 0 for name in names) <= grant.pod.cpu_limit
