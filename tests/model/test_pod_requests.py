"""What a pod requests, against a plain reading of the rules and against worked examples."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.pod import Container, Pod, PodSpec, ResourceRequirements
from koordinator.api.quantity import Quantity
from koordinator.model.pod_requests import canonical, non_zero_requests, pod_limits, pod_requests
from tests.real_world.pods import PODS, PodShape

amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/widget"]),
    st.integers(0, 5).map(lambda count: Quantity.from_milli(count * 250)),
)
requirements = st.builds(ResourceRequirements, requests=amounts, limits=amounts)
containers = st.lists(st.builds(Container, name=st.just("c"), resources=requirements), min_size=1, max_size=3)
init_containers = st.lists(
    st.builds(Container, name=st.just("i"), resources=requirements, restart_policy=st.sampled_from([None, "Always"])),
    max_size=3,
)
pods = st.builds(Pod, spec=st.builds(PodSpec, containers=containers, init_containers=init_containers, overhead=amounts))
NAMES = ("cpu", "memory", "example.com/widget")


def of(pod: Pod, field: str, container: Container, name: str) -> int:
    amount = getattr(container.resources, field).get(name)
    return amount.nanos if amount is not None else 0


def plainly(pod: Pod, field: str, name: str) -> int:
    """The most that is needed at once: while each init container runs, or when all others do."""
    sidecars = 0
    phases = []
    for container in pod.spec.init_containers:
        own = of(pod, field, container, name)
        if container.restart_policy == "Always":
            sidecars += own
            phases.append(sidecars)
        else:
            phases.append(sidecars + own)
    phases.append(sidecars + sum(of(pod, field, container, name) for container in pod.spec.containers))
    return max(phases)


@given(pods)
def test_requests_are_the_most_that_is_needed_at_once_and_overhead(pod: Pod) -> None:
    overhead = {name: amount.nanos for name, amount in pod.spec.overhead.items()}
    found = pod_requests(pod)
    assert {name: found.get(name, 0) for name in NAMES} == {
        name: plainly(pod, "requests", name) + overhead.get(name, 0) for name in NAMES
    }


@given(pods)
def test_limits_take_overhead_only_where_there_is_a_limit(pod: Pod) -> None:
    found = pod_limits(pod)
    for name in NAMES:
        overhead = pod.spec.overhead.get(name, Quantity(0)).nanos
        limit = plainly(pod, "limits", name)
        assert found.get(name, 0) == (limit + overhead if limit else 0)


@given(pods)
def test_defaults_never_lower_a_request(pod: Pod) -> None:
    exact, counted = pod_requests(pod), non_zero_requests(pod)
    assert all(counted[name] >= amount for name, amount in exact.items())


def pod(**spec: Any) -> Pod:
    status = spec.pop("status", {})
    return convert({"spec": spec, "status": status}, Pod)


def container(name: str = "c", **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}}


def cpu(found: dict[str, int]) -> int:
    return canonical("cpu", found["cpu"])


def test_a_container_that_names_zero_is_not_given_the_default() -> None:
    two = pod(containers=[container(cpu="0", memory="0"), container(cpu="0")])
    assert non_zero_requests(two) == {"cpu": 0, "memory": 200 * 2**20 * 10**9}


def test_amounts_for_the_whole_pod_replace_those_of_containers() -> None:
    whole = pod(containers=[container(cpu="1", memory="1Gi")], resources={"requests": {"cpu": "3"}})
    assert cpu(pod_requests(whole)) == 3000
    assert canonical("memory", pod_requests(whole)["memory"]) == 2**30


def test_the_whole_pod_cannot_request_extended_resources() -> None:
    whole = pod(containers=[container()], resources={"requests": {"example.com/widget": "3"}})
    assert pod_requests(whole) == {}


GRANTED = {"name": "c", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "1500m"}}
INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
RESIZES = {
    "growing": ("3", [], 3000),
    "what has to wait is counted": ("3", [DEFERRED], 3000),
    "the reason decides, not the status": ("3", [{**INFEASIBLE, "status": "False"}], 2000),
    "shrinking is counted when it is done": ("1", [], 2000),
    "what cannot be granted is not counted": ("3", [INFEASIBLE], 2000),
}


@pytest.mark.parametrize("case", RESIZES)
def test_a_resize_counts_what_is_requested_granted_or_running(case: str) -> None:
    requested, conditions, expected = RESIZES[case]
    resized = pod(
        containers=[container(cpu=requested)], status={"containerStatuses": [GRANTED], "conditions": conditions}
    )
    assert cpu(pod_requests(resized)) == expected
    assert cpu(pod_requests(resized, resized=False)) == int(requested) * 1000


def test_defaults_count_beside_amounts_for_the_whole_pod_only_for_what_nobody_names() -> None:
    whole = pod(containers=[container(cpu="1"), container("d")], resources={"requests": {"hugepages-2Mi": "4Mi"}})
    counted = non_zero_requests(whole)
    assert (cpu(counted), canonical("memory", counted["memory"])) == (1000, 2 * 200 * 2**20)


def test_a_sidecar_that_is_resized_counts_and_an_init_container_does_not() -> None:
    sidecar, init = {**container("s", cpu="1"), "restartPolicy": "Always"}, container("i", cpu="1")
    statuses = [{**GRANTED, "name": name} for name in ("s", "i")]
    resized = pod(
        containers=[container(cpu="500m")],
        initContainers=[sidecar, init],
        status={"initContainerStatuses": statuses},
    )
    # The phase of the init container beside the sidecar: 1 + 2; of the container: 0.5 + 2.
    assert cpu(pod_requests(resized)) == 3000


def test_fractions_of_the_unit_are_rounded_up_once_for_the_whole_pod() -> None:
    two = pod(containers=[container(cpu="100u"), container(cpu="200u")])
    assert cpu(pod_requests(two)) == 1


@pytest.mark.parametrize("shape", PODS, ids=lambda shape: shape.name)
def test_pods_as_people_have_them(shape: PodShape) -> None:
    running = convert(shape.running("default", "node", "uid"), Pod)
    assert pod_requests(running).get("cpu", 0) == shape.milli_cpu * 1_000_000
