"""A cluster in which every event handler of the chart's profile has something to keep, what happens in it, and what all
plugins make of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from koordinator.api import annotations as keys
from koordinator.api.codec import convert, to_document
from koordinator.api.kinds import (
    CSI_NODES,
    DEVICES,
    ELASTIC_QUOTAS,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    RESERVATIONS,
    SERVICES,
    Kind,
)
from koordinator.api.labels import POD_GROUP, QUOTA_NAME
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.framework_hooks import ServiceProvider
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.explain.explainer import Explainer
from koordinator.scheduler.explain.sources import filter_nodes
from koordinator.scheduler.plugins.device_share.plugin import DeviceShare
from tests.real_world.broken_documents import device_document
from tests.scheduler.broken_input.test_broken_objects import healthy, healthy_pod
from tests.scheduler.plugins.reservation.test_free_capacity import available
from tests.scheduler.plugins.volumes.storage import DRIVER, claim, csi, csi_node, volume
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi

Document = dict[str, Any]
_ABOUT_NODES: Final[tuple[Kind[Any], ...]] = (NODES, NODE_RESOURCE_TOPOLOGIES, DEVICES, NODE_METRICS)
_APART: Final = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "alone"}}}
        ]
    }
}
_SPREAD: Final = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "spread"}},
}
_GPU_HELD: Final = {
    "gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "60", "koordinator.sh/gpu-memory-ratio": "60"}}]
}


def pod(name: str, *, on: str = "", **changes: Any) -> Document:
    """A pod of the chart's profile; ``spec``, ``labels``, ``annotations``, ``gpu`` as named."""
    found = healthy_pod(
        name, labels=changes.get("labels"), annotations=changes.get("annotations"), gpu=changes.get("gpu", False)
    )
    found["metadata"]["uid"] = f"uid-{name}"
    found["spec"] |= changes.get("spec", {})
    if on:
        found["spec"]["nodeName"] = on
    return found


def with_port(name: str, port: int, on: str = "") -> Document:
    found = pod(name, on=on)
    found["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return found


def with_claim(name: str, claim_name: str, on: str = "") -> Document:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]
    return pod(name, on=on, spec={"volumes": volumes})


def pods_on(node: str) -> list[Document]:
    """One for each thing that plugins count."""
    cpus = {keys.RESOURCE_STATUS: json.dumps({"cpuset": "0-1"})}
    spoilt = pod(f"{node}-spoilt", on=node, annotations={keys.DEVICE_ALLOCATED: "{bad"})
    spoilt["spec"]["containers"][0]["resources"]["requests"]["koordinator.sh/fpga"] = "100"
    owner = {keys.RESERVATION_ALLOCATED: json.dumps({"name": "r", "uid": "uid-r"})}
    return [
        pod(f"{node}-gpu", on=node, gpu=True, annotations={keys.DEVICE_ALLOCATED: json.dumps(_GPU_HELD)}),
        pod(f"{node}-cpus", on=node, annotations=cpus, labels={"koordinator.sh/qosClass": "LSR"}),
        pod(f"{node}-alone", on=node, labels={"app": "alone"}, spec={"affinity": _APART}),
        pod(f"{node}-spread", on=node, labels={"app": "spread"}),
        pod(f"{node}-quota", on=node, labels={QUOTA_NAME: "team"}),
        pod(f"{node}-owner", on=node, labels={"app": "web"}, annotations=owner),
        pod(f"{node}-gang", on=node, labels={POD_GROUP: "gang"}),
        with_port(f"{node}-port", 8080, on=node),
        spoilt,
        with_claim(f"{node}-claim", f"{node}-data", on=node),
    ]


def put_node(api: SchedulerApi, name: str) -> None:
    api.put(NODES, _node(name))
    for kind in _ABOUT_NODES[1:]:
        api.put(kind, healthy(kind, name))
    api.put(CSI_NODES, to_document(csi_node(name, {DRIVER: 3})))
    claimed = claim(f"{name}-data", f"{name}-volume", of="")
    api.put(PERSISTENT_VOLUME_CLAIMS, to_document(claimed))
    there = volume(f"{name}-volume", to=f"{name}-data", of="", csi=csi(f"{name}-handle"))
    api.put(PERSISTENT_VOLUMES, to_document(there))


def _node(name: str, **labels: str) -> Document:
    found = healthy(NODES, name)
    found["metadata"]["labels"] |= labels
    found["spec"] = {"taints": [{"key": "soft", "value": "", "effect": "PreferNoSchedule"}]}
    found["status"]["images"] = [{"names": ["pause"], "sizeBytes": 500 << 20}]
    return found


def busy_cluster() -> SchedulerApi:
    """Two nodes: ``kept`` stays, ``gone`` does not."""
    api = SchedulerApi()
    for name in ("kept", "gone"):
        put_node(api, name)
        for each in pods_on(name):
            api.put(PODS, each)
    api.put(ELASTIC_QUOTAS, quota("4"))
    api.put(RESERVATIONS, to_document(available("r", node="kept", once=False)))
    api.put(POD_GROUPS, {"metadata": {"name": "gang", "namespace": "default"}, "spec": {"minMember": 2}})
    api.put(SERVICES, service("web"))
    return api


def quota(most: str) -> Document:
    amounts = {"cpu": most, "memory": "8Gi"}
    return {"metadata": {"name": "team", "namespace": "default"}, "spec": {"min": amounts, "max": amounts}}


def service(app: str) -> Document:
    return {"metadata": {"name": "service", "namespace": "default"}, "spec": {"selector": {"app": app}}}


def change_all(api: SchedulerApi) -> None:
    """New, changed and vanished objects of every kind."""
    owner = pods_on("kept")[5]
    owner["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1500m"
    api.put(PODS, owner)
    for each in pods_on("gone"):
        api.remove(PODS, each["metadata"]["name"], "default")
    for kind in (*_ABOUT_NODES, CSI_NODES):
        api.remove(kind, "gone", "")
    put_node(api, "new")
    for each in pods_on("new"):
        api.put(PODS, each)
    for each in pods_on("kept")[:4]:
        api.remove(PODS, each["metadata"]["name"], "default")
    for each in pods_on("kept")[4:]:
        api.put(PODS, {**each, "metadata": {**each["metadata"], "annotations": {"example.com/changed": "yes"}}})
    for each in pods_on("kept")[:2]:
        name = f"{each['metadata']['name']}-again"
        api.put(PODS, {**each, "metadata": {**each["metadata"], "name": name, "uid": f"uid-{name}"}})
    api.put(NODES, _node("kept", zone="other"))
    api.put(DEVICES, {**device_document(resources={"koordinator.sh/gpu-core": "100"}), "metadata": {"name": "kept"}})
    api.put(CSI_NODES, to_document(csi_node("kept", {DRIVER: 2})))
    moved = volume("kept-volume", to="kept-data", of="", csi=csi("another-handle"))
    api.put(PERSISTENT_VOLUMES, to_document(moved))
    api.put(ELASTIC_QUOTAS, quota("3"))
    api.put(SERVICES, service("spread"))


def pods_that_wait() -> list[Document]:
    """Each is rejected or scored by what one plugin counts."""
    return [
        pod("wants-gpu", gpu=True),
        pod("wants-cpus", labels={"koordinator.sh/qosClass": "LSR"}),
        pod("wants-apart", labels={"app": "alone"}),
        pod("wants-spread", labels={"app": "spread"}, spec={"topologySpreadConstraints": [_SPREAD]}),
        pod("wants-quota", labels={QUOTA_NAME: "team"}),
        pod("wants-reservation", labels={"app": "web"}),
        pod("wants-gang", labels={POD_GROUP: "gang"}),
        with_port("wants-port", 8080),
        with_claim("wants-claim", "kept-data"),
    ]


def picture(fixture: RunningScheduler) -> Document:
    """What each plugin decides and shows, by names of nodes."""
    profile, view = fixture.scheduler.engines["koord-scheduler"].profile, fixture.scheduler.state.view
    rows = view.columns.row_of
    return {
        "requested": {name: view.columns.numbers[row].by_name() for name, row in rows.items()},
        "allocations": {
            pod.key: [view.allocations.of(plugin, uid) for plugin in profile.plugins]
            for pods in view.pods_on.values()
            for uid, pod in pods.items()
        },
        "devices": _devices(profile, rows),
        "facts": {
            plugin.name: {name: plugin.node_facts(row) for name, row in rows.items()}
            for plugin in profile.parts
            if isinstance(plugin, Explainer)
        },
        "services": {
            f"{plugin.name}{path}": _answers(serve, [*rows, "r", "team", "gang"])
            for plugin in profile.parts
            # Of LoadAwareScheduling it says when each pod was first seen.
            if isinstance(plugin, ServiceProvider) and plugin.name != "LoadAwareScheduling"
            for path, serve in plugin.services().items()
        },
        "pods": {document["metadata"]["name"]: _evaluated(profile, fixture, document) for document in pods_that_wait()},
    }


def _devices(profile: Profile, rows: Mapping[str, int]) -> Document:
    plugin = profile.plugins["DeviceShare"]
    assert isinstance(plugin, DeviceShare)
    found = {name: plugin.nodes.get(row) for name, row in rows.items()}
    return {name: (node.used, node.functions_used, node.held) for name, node in found.items() if node is not None}


def _answers(serve: Callable[[Mapping[str, str]], Any], names: list[str]) -> list[str]:
    found = []
    for name in sorted(names):
        try:
            answer = serve({"nodeName": name, "name": name, "namespace": "default"})
        except Exception as error:
            # Not every name is one of each service.
            answer = str(error)
        found.append(repr(answer))
    return found


def _evaluated(profile: Profile, fixture: RunningScheduler, document: Document) -> Document:
    view = fixture.scheduler.state.view
    info: PodInfo = make_pod_info(convert(document, Pod))
    results = filter_nodes(profile, view, info)
    if results.plan.rejection is not None:
        return {"rejection": repr(results.plan.rejection)}
    evaluation = Evaluation(profile, view, info)
    evaluation.refresh()
    return {
        view.columns.names[row]: (repr(results.objections(index)), evaluation.scores_of((row,))[0])
        for index, row in enumerate(results.rows.tolist())
    }
