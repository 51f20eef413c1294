"""The cache's view of a node has the original's keys."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.node import ContainerImage
from koordinator.api.pod import (
    Affinity,
    ContainerPort,
    PersistentVolumeClaimVolumeSource,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Volume,
    WeightedPodAffinityTerm,
)
from koordinator.base.services import ServiceError
from koordinator.scheduler.services.node_document import node_service
from tests.scheduler.explain.scene import Scene, make_node, make_pod


def document(scene: Scene, name: str = "a") -> dict[str, Any]:
    found: dict[str, Any] = node_service(scene.view)({"nodeName": name})
    return found


def changed(pod: Pod, **spec: Any) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **spec))


def with_one(pod: Pod) -> dict[str, Any]:
    scene = Scene(make_node("a"))
    scene.place(pod)
    return document(scene)


def test_an_unknown_node_is_not_found() -> None:
    with pytest.raises(ServiceError, match=r"^cannot find node b$") as caught:
        document(Scene(make_node("a")), "b")
    assert caught.value.status == 404


def test_an_empty_node_has_no_keys_for_what_is_not_there() -> None:
    resources = {"requested", "nonZeroRequested", "remaining", "allocatable"}
    assert document(Scene(make_node("a"))).keys() == {"node", "generation", *resources}


def test_resources_are_in_milli_cpu_and_bytes() -> None:
    assert document(Scene(make_node("a", cpu="4", memory="8Gi", pods="9")))["allocatable"] == {
        "MilliCPU": 4000,
        "Memory": 8 << 30,
        "EphemeralStorage": 0,
        "AllowedPodNumber": 9,
        "ScalarResources": None,
    }


def test_pods_are_no_requested_resource() -> None:
    found = with_one(make_pod("p", cpu="1", node="a"))
    assert (found["requested"]["AllowedPodNumber"], found["remaining"]["AllowedPodNumber"]) == (0, 110)


def test_what_remains_may_be_negative() -> None:
    assert with_one(make_pod("p", cpu="5", node="a"))["remaining"]["MilliCPU"] == -1000


def test_a_pod_without_requests_counts_with_the_defaults_of_scoring() -> None:
    pod = make_pod("p", node="a")
    (container,) = pod.spec.containers
    bare = msgspec.structs.replace(container, resources=msgspec.structs.replace(container.resources, requests={}))
    found = with_one(changed(pod, containers=[bare]))
    assert (found["requested"]["MilliCPU"], found["nonZeroRequested"]["MilliCPU"]) == (0, 100)


def test_host_ports_are_listed_by_address_those_of_sidecars_included() -> None:
    pod = make_pod("p", node="a")
    (container,) = pod.spec.containers
    ports = [ContainerPort(container_port=1, host_port=80), ContainerPort(container_port=2)]
    main = msgspec.structs.replace(container, ports=ports)
    local = ContainerPort(container_port=3, host_port=53, host_ip="127.0.0.1", protocol="UDP")
    sidecar = msgspec.structs.replace(container, name="side", ports=[local], restart_policy="Always")
    assert with_one(changed(pod, containers=[main], init_containers=[sidecar]))["usedPorts"] == {
        "0.0.0.0": [{"Protocol": "TCP", "Port": 80}],
        "127.0.0.1": [{"Protocol": "UDP", "Port": 53}],
    }


def test_claims_are_counted() -> None:
    volume = Volume(name="v", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name="data"))
    scene = Scene(make_node("a"))
    for name in ("p", "q"):
        scene.place(changed(make_pod(name, node="a"), volumes=[volume]))
    assert document(scene)["pvcRefCounts"] == {"default/data": 2}


def test_images_say_how_many_nodes_have_them() -> None:
    def having(name: str, *images: str) -> Any:
        node = make_node(name)
        status = msgspec.structs.replace(node.status, images=[ContainerImage(names=[*images], size_bytes=7)])
        return msgspec.structs.replace(node, status=status)

    scene = Scene(having("a", "x", "y"), having("b", "x", "z"))
    assert document(scene)["imageStates"] == {
        "x": {"Size": 7, "NumNodes": 2, "Nodes": None},
        "y": {"Size": 7, "NumNodes": 1, "Nodes": None},
    }


def term(**changes: Any) -> PodAffinityTerm:
    selector = LabelSelector(
        match_labels={"b": "1"}, match_expressions=[LabelSelectorRequirement(key="a", operator="Exists")]
    )
    return PodAffinityTerm(label_selector=selector, topology_key="zone", **changes)


def apart(*terms: PodAffinityTerm) -> Pod:
    rules = PodAffinity(required_during_scheduling_ignored_during_execution=[*terms])
    return changed(make_pod("p", node="a"), affinity=Affinity(pod_anti_affinity=rules))


def test_a_required_term_is_resolved_against_the_pod_s_namespace() -> None:
    (pod,) = with_one(apart(term()))["podsWithRequiredAntiAffinity"]
    assert pod["RequiredAntiAffinityTerms"] == [
        {
            "Namespaces": {"default": {}},
            "Selector": [
                {"key": "a", "operator": "Exists", "values": []},
                {"key": "b", "operator": "In", "values": ["1"]},
            ],
            "TopologyKey": "zone",
            "NamespaceSelector": {},
        }
    ]


def test_a_term_with_namespaces_of_its_own_does_not_mean_the_pod_s() -> None:
    terms = apart(term(namespaces=["x"]), term(namespace_selector=LabelSelector()))
    (pod,) = with_one(terms)["podsWithRequiredAntiAffinity"]
    assert [each["Namespaces"] for each in pod["RequiredAntiAffinityTerms"]] == [{"x": {}}, {}]


def test_a_preferred_term_has_its_weight() -> None:
    weighted = WeightedPodAffinityTerm(weight=7, pod_affinity_term=term())
    rules = PodAffinity(preferred_during_scheduling_ignored_during_execution=[weighted])
    found = with_one(changed(make_pod("p", node="a"), affinity=Affinity(pod_affinity=rules)))
    assert found["podsWithAffinity"][0]["PreferredAffinityTerms"][0]["Weight"] == 7
    assert "podsWithRequiredAntiAffinity" not in found
