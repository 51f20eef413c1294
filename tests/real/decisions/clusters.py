"""Random clusters and pods as JSON documents, from a seed: what two schedulers are queried about."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from random import Random
from typing import Any

from koordinator.api.annotations import SCHEDULING_HINT
from koordinator.api.pod import Pod

ZONES = ("z1", "z2", "z3")
APPS = ("web", "db", "batch")
IMAGES = {
    f"registry.example.com:5000/{app}": (tag, size * 2**20 + size)
    for app, tag, size in (("web", "v1", 700), ("db", "latest", 1900), ("batch", "v2", 90))
}
"""Name -> tag and size, which is the same on all nodes: the original takes that of whichever node it saw first."""
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
Document = dict[str, Any]


def make_node(random: Random, number: int) -> Document:
    """A node of a random size, zone, taints and images; every sixth is cordoned."""
    name = f"node-{number:02d}"
    labels = {HOST: name, ZONE: random.choice(ZONES), "disk": random.choice(["ssd", "hdd"])}
    if random.random() < 0.15:
        del labels[ZONE]
    taints = [
        {"key": key, "value": "yes", "effect": effect}
        for key, effect in (("dedicated", "NoSchedule"), ("slow", "PreferNoSchedule"), ("old", "PreferNoSchedule"))
        if random.random() < 0.25
    ]
    amounts = {"cpu": str(random.randint(2, 16)), "memory": f"{random.randint(4, 64)}Gi", "pods": "20"}
    if random.random() < 0.5:
        amounts["example.com/widget"] = str(random.randint(1, 4))
    images = [
        {"names": [f"{image}@sha256:{'0' * 64}", f"{image}:{tag}"], "sizeBytes": size}
        for image, (tag, size) in IMAGES.items()
        if random.random() < 0.6
    ]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": number % 6 == 5},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": images,
        },
    }


def make_metric(random: Random, node: Document) -> Document:
    """What the node is said to use: a random share of what it has."""
    allocatable = node["status"]["allocatable"]
    cpu = int(int(allocatable["cpu"]) * 1000 * random.random() * 0.7)
    memory = int(int(allocatable["memory"].removesuffix("Gi")) * 2**30 * random.random())
    usage = {"resources": {"cpu": f"{cpu}m", "memory": str(memory)}}
    return {
        "metadata": {"name": node["metadata"]["name"]},
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
        "status": {
            "updateTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "nodeMetric": {"nodeUsage": usage, "systemUsage": usage},
        },
    }


def make_running_pod(random: Random, number: int, nodes: list[Document]) -> Document:
    """A pod that is on a node from the beginning."""
    pod = make_pod(random, f"running-{number:03d}", hard=False)
    pod["spec"]["nodeName"] = random.choice(nodes)["metadata"]["name"]
    pod["spec"].pop("topologySpreadConstraints", None)
    return pod


def make_pod(random: Random, name: str, *, hard: bool = True) -> Document:
    """A pod with a random selection of wishes; ``hard`` ones may leave no node at all."""
    app = random.choice(APPS)
    requests = {"cpu": f"{random.choice([0, 100, 500, 1500])}m", "memory": f"{random.choice([0, 256, 1024, 3000])}Mi"}
    if hard and random.random() < 0.15:
        requests["example.com/widget"] = str(random.randint(1, 3))
    container: Document = {
        "name": "main",
        "image": _image(random),
        "resources": {"requests": requests, "limits": {k: v for k, v in requests.items() if k.startswith("example")}},
    }
    if random.random() < 0.1:
        container["ports"] = [{"containerPort": 80, "hostPort": random.choice([8080, 8081])}]
    spec: Document = {
        "schedulerName": "koord-scheduler",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    if random.random() < 0.25:
        spec["resources"] = {"requests": _of_whole_pod(random, requests)}
    if random.random() < 0.2:
        spec["initContainers"] = [{"name": "first", "image": _image(random)}]
    if random.random() < 0.4:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    if random.random() < 0.2:
        spec["tolerations"] = [*spec.get("tolerations", []), {"key": "slow", "effect": "PreferNoSchedule"}]
    if hard and random.random() < 0.15:
        spec["nodeSelector"] = {"disk": random.choice(["ssd", "hdd"])}
    affinity = _affinity(random, app, hard=hard)
    if affinity:
        spec["affinity"] = affinity
    spread = _spread(random, app, hard=hard)
    if spread:
        spec["topologySpreadConstraints"] = spread
    metadata: Document = {"name": name, "labels": {"app": app, "tier": random.choice("ab")}}
    if hard and random.random() < 0.2:
        key = random.choice(["nodeNames", "preferredNodeNames"])
        named = [f"node-{random.randrange(30):02d}" for _ in range(random.choice([2, 12]))]
        metadata["annotations"] = {SCHEDULING_HINT: json.dumps({key: named})}
    return {"metadata": metadata, "spec": spec}


def preferred_nodes(pod: Pod) -> list[str]:
    """The nodes that a pod's scheduling hint would rather have."""
    hint = json.loads(pod.metadata.annotations.get(SCHEDULING_HINT, "{}"))
    names: list[str] = hint.get("preferredNodeNames", [])
    return names


def _of_whole_pod(random: Random, requests: Document) -> Document:
    """As much as its container requests, or more; of one resource or of both."""
    whole = {
        "cpu": f"{int(requests['cpu'].removesuffix('m')) + random.choice([0, 400])}m",
        "memory": f"{int(requests['memory'].removesuffix('Mi')) + random.choice([0, 700])}Mi",
    }
    return {name: whole[name] for name in random.choice([["cpu"], ["memory"], ["cpu", "memory"]])}


def _image(random: Random) -> str:
    """By tag, by digest, or by neither, which means the tag latest."""
    image = random.choice(list(IMAGES))
    tag, _ = IMAGES[image]
    return image + random.choice([f":{tag}", f":{tag}", f"@sha256:{'0' * 64}", ""])


def _selector(random: Random) -> Document:
    if random.random() < 0.7:
        return {"matchLabels": {"app": random.choice(APPS)}}
    return {"matchExpressions": [{"key": "tier", "operator": random.choice(["In", "NotIn"]), "values": ["a"]}]}


def _term(random: Random) -> Document:
    return {"topologyKey": random.choice([HOST, ZONE]), "labelSelector": _selector(random)}


def _affinity(random: Random, app: str, *, hard: bool) -> Document:
    affinity: Document = {}
    if random.random() < 0.25:
        disk = {"key": "disk", "operator": "In", "values": [random.choice(["ssd", "hdd"])]}
        affinity["nodeAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": random.randint(1, 100), "preference": {"matchExpressions": [disk]}}
            ]
        }
    for side in ("podAffinity", "podAntiAffinity"):
        terms: Document = {}
        if random.random() < 0.2:
            terms["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": random.randint(1, 100), "podAffinityTerm": _term(random)}
            ]
        if hard and random.random() < 0.12:
            terms["requiredDuringSchedulingIgnoredDuringExecution"] = [_term(random)]
        if terms:
            affinity[side] = terms
    return affinity


def _spread(random: Random, app: str, *, hard: bool) -> list[Document]:
    constraints = []
    for key in (HOST, ZONE):
        if random.random() < 0.2:
            action = "DoNotSchedule" if hard and random.random() < 0.5 else "ScheduleAnyway"
            constraints.append(
                {
                    "maxSkew": random.randint(1, 3),
                    "topologyKey": key,
                    "whenUnsatisfiable": action,
                    "labelSelector": {"matchLabels": {"app": app}},
                }
            )
    return constraints
