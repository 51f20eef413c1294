"""What a person is told to do about a pod that no node takes."""

from __future__ import annotations

import msgspec
import pytest

from koordinator.api.pod import ContainerPort, Pod
from koordinator.scheduler.engine.decision import RejectedNodes
from koordinator.scheduler.explain.advice import advise
from koordinator.scheduler.explain.sources import filter_nodes
from tests.scheduler.explain.scene import Scene, make_node, make_pod, tainted


def advice(scene: Scene, pod: Pod) -> list[str]:
    scene.try_pod(pod)
    sentences: list[str] = scene.pod(pod.metadata.name)["advice"]
    return sentences


def blamed(plugin: str, *reasons: str) -> str:
    """What is said when the last attempt blames ``plugin`` and nodes cannot be evaluated."""
    scene = Scene(make_node("a"))
    info = scene.info(make_pod("p"))
    return "; ".join(advise([RejectedNodes(plugin, reasons, True, 1, ("a",))], info, scene.view, None))


def test_too_little_capacity_names_the_node_with_the_most_and_what_is_missing() -> None:
    scene = Scene(make_node("a", cpu="4"), make_node("b", cpu="4"))
    scene.place(make_pod("x", cpu="3", node="a", priority=9))
    scene.place(make_pod("y", cpu="2500m", node="b", priority=9))
    (sentence,) = advice(scene, make_pod("p", cpu="2"))
    assert sentence.startswith(
        "The pod requests 2 cores of cpu. Among the nodes that are too full for that, b has the most free, 1.5 cores: "
        "short by 0.5 cores. "
    )


def test_a_request_that_no_node_could_ever_meet_names_the_largest_node() -> None:
    (sentence,) = advice(Scene(make_node("a", cpu="4"), make_node("b", cpu="8")), make_pod("p", cpu="9"))
    assert sentence.startswith(
        "The pod requests 9 cores of cpu, for which nodes are too small: the largest of them, b, has 8 cores"
    )


def test_nodes_that_the_pod_may_not_use_do_not_count_as_room() -> None:
    scene = Scene(tainted(make_node("large", cpu="32"), "team", "data"), make_node("small", cpu="4"))
    sentences = advice(scene, make_pod("p", cpu="9"))
    assert "the largest of them, small, has 4 cores in all" in sentences[-1]


def test_nodes_that_have_capacity_do_not_hide_how_much_is_missing_on_those_that_do_not() -> None:
    scene = Scene(make_node("busy", cpu="8"), make_node("full", cpu="4"))
    scene.report("busy", cpu="7", memory="1Gi")
    capacity, load = sorted(advice(scene, make_pod("p", cpu="6")), key=lambda text: text.startswith("Nodes are busy"))
    assert load.startswith("Nodes are busy")
    assert "the largest of them, full, has 4 cores in all" in capacity


def test_capacity_on_nodes_that_the_pod_may_not_use_anyway_is_no_matter() -> None:
    scene = Scene(make_node("busy", cpu="8"), make_node("other", cpu="8"))
    scene.report("busy", cpu="7", memory="1Gi")
    scene.try_pod(make_pod("p", cpu="9"))
    scene.state.set_node(make_node("busy", cpu="32"))
    scene.report("busy", cpu="31", memory="1Gi")
    scene.state.set_node(make_node("other", cpu="8", unschedulable=True))
    assert scene.pod("p")["advice"] == []


def test_without_any_usable_node_there_is_no_largest_one() -> None:
    scene = Scene(make_node("a", cpu="1", unschedulable=True))
    info = scene.info(make_pod("p", cpu="9"))
    fit = RejectedNodes("NodeResourcesFit", ("Insufficient cpu",), True, 1, ("a",))
    (sentence,) = advise([fit], info, scene.view, filter_nodes(scene.profile, scene.view, info))
    assert sentence == "The pod requests 9 cores of cpu, but there is no node that it could use at all."


def test_a_resource_that_no_node_has_is_not_short_but_absent() -> None:
    scene = Scene(make_node("a"))
    pod = make_pod("p")
    (container,) = pod.spec.containers
    amount = container.resources.requests["cpu"]
    requests = {**container.resources.requests, "example.com/gpu": amount}
    container = msgspec.structs.replace(
        container, resources=msgspec.structs.replace(container.resources, requests=requests)
    )
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=[container]))
    (sentence,) = advice(scene, pod)
    assert sentence.startswith("No node that the pod could use offers any example.com/gpu")


def test_what_alone_would_be_enough_comes_first_and_names_the_nodes() -> None:
    scene = Scene(
        make_node("cordoned", cpu="1", unschedulable=True),
        tainted(make_node("large", cpu="32"), "team", "data"),
        make_node("small", cpu="4"),
    )
    first = advice(scene, make_pod("p", cpu="9"))[0]
    assert first == (
        "Give the pod a toleration, or take a taint off a node with kubectl taint (taint team=data:NoSchedule is not "
        "tolerated). Nothing else keeps the pod off one node: large."
    )


def test_examples_of_nodes_are_few() -> None:
    scene = Scene(*(make_node(f"n{number}", unschedulable=True) for number in range(5)))
    (sentence,) = advice(scene, make_pod("p"))
    assert sentence.endswith("Nothing else keeps the pod off 5 nodes: n0, n1, n2, ….")


def test_an_unmet_selector_names_the_label() -> None:
    pod = make_pod("p")
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_selector={"disk": "ssd"}))
    (sentence,) = advice(Scene(make_node("a")), pod)
    assert "(label disk=ssd is needed, the node has none)" in sentence


def test_a_taken_host_port_is_named() -> None:
    def using_port(pod: Pod) -> Pod:
        (container,) = pod.spec.containers
        container = msgspec.structs.replace(container, ports=[ContainerPort(container_port=80, host_port=8080)])
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=[container]))

    scene = Scene(make_node("a"))
    scene.place(using_port(make_pod("x", node="a", priority=9)))
    (sentence,) = advice(scene, using_port(make_pod("p")))
    assert "(host port 8080/TCP is taken)" in sentence


def test_busy_nodes_are_distinguished_from_silent_ones() -> None:
    busy, silent = Scene(make_node("a")), Scene(make_node("a"))
    busy.report("a", cpu="3900m", memory="1Gi")
    silent.report("a", cpu="1", memory="1Gi", age=1e6)
    texts = [advice(scene, make_pod("p"))[0] for scene in (busy, silent)]
    assert [text.split(":")[0] for text in texts] == [
        "Nodes are busy, measured and expected use counted",
        "Nodes have not reported their usage for too long",
    ]


@pytest.mark.parametrize("plugin", ["VolumeBinding", "VolumeZone", "NodeVolumeLimits", "VolumeRestrictions"])
def test_a_broken_claim_is_distinguished_from_what_nodes_lack(plugin: str) -> None:
    assert blamed(plugin, 'persistentvolumeclaim "data" not found').startswith("Something is wrong with a volume claim")
    assert not blamed(plugin, "node(s) ...").startswith("Something is wrong")


@pytest.mark.parametrize("plugin", ["NodeName", "PodTopologySpread", "InterPodAffinity"])
def test_every_other_built_in_filter_has_its_sentence(plugin: str) -> None:
    assert blamed(plugin, "some reason").endswith(".")


@pytest.mark.parametrize(
    ("reason", "begins"),
    [
        ("Insufficient gpu devices", "Nodes have too few devices free"),
        ("node(s) missing GPU Partition Table", "Nodes list no GPU partitions"),
        ("node(s) Unsupported number of GPU requests", "Nodes have no partition of so many GPUs"),
        ("node(s) missing GPU Device Topology Tree", "The Device objects of nodes do not say"),
        ("node(s) Device Joint-Allocate rules violation", "No devices that are free are on the same PCIe switches"),
        ("no matched GPU shared resource template", "Request just what one of the templates"),
        ('model "M" of vendor "V" does not support GPU Share', "GPUs of the model are not shared"),
        ("GPUIsolationProviderHAMICore not found on the node", "Nodes isolate shares of GPUs otherwise"),
    ],
)
def test_what_keeps_devices_from_a_pod_is_distinguished(reason: str, begins: str) -> None:
    assert blamed("DeviceShare", reason).startswith(begins)


def test_a_plugin_of_somebody_else_s_is_not_advised_on() -> None:
    assert blamed("Theirs", "some reason") == ""


def test_without_a_result_capacity_is_looked_for_on_all_nodes() -> None:
    assert (
        blamed("NodeResourcesFit", "Insufficient cpu") == "The pod requests 1 core of cpu; a has as much free by now."
    )


def test_too_many_pods_is_not_a_matter_of_amounts() -> None:
    assert blamed("NodeResourcesFit", "Too many pods").startswith("Nodes have no room for one more pod")


def test_a_pod_that_was_not_tried_yet_gets_no_advice() -> None:
    scene = Scene(make_node("a"))
    scene.add(make_pod("p"))
    assert scene.pod("p")["advice"] == []


@pytest.mark.parametrize(
    ("reason", "quota", "limit"),
    [
        ("Insufficient quotas, quotaName: q, runtime: cpu:8", "q", "runtime"),
        ("Insufficient quotas, quotaNameTopo: [root team q], runtime: cpu:8", "q", "runtime"),
        ("Insufficient non-preemptible quotas, quotaName: q, min: cpu:8", "q", "its min:"),
    ],
)
def test_a_quota_is_named_with_the_limit_that_counts(reason: str, quota: str, limit: str) -> None:
    text = blamed("ElasticQuota", reason)
    assert f"The pods of the quota {quota} use, with this one, more than" in text
    assert limit in text


def test_another_refusal_of_a_quota_has_no_advice() -> None:
    assert blamed("ElasticQuota", "quota q belongs to no tree: a cycle") == ""


def test_a_share_of_a_gpu_above_a_hundred_is_told_what_is_allowed() -> None:
    said = blamed("DeviceShare", "invalid resource device requests: [koordinator.sh/gpu-core]")
    assert said.startswith("A share of a GPU is at most 100, and several GPUs are requested in whole hundreds")


def test_a_pod_that_is_larger_than_its_quota_is_not_told_to_wait() -> None:
    reason = "Insufficient quotas, quotaName: small, runtime: cpu:1, used: <empty>, pod's request: cpu:3"
    said = blamed("ElasticQuota", reason)
    assert "The quota small has nothing in use, and the pod alone requests more" in said
    assert "wait until" not in said
