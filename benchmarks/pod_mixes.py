"""The pods of each benchmark case, as documents: equal, mixed, all different, kept apart. The same in every run."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from benchmarks import workload
from koordinator.api.labels import POD_GROUP, QOS_CLASS, QUOTA_IS_PARENT, QUOTA_NAME, QUOTA_PARENT
from koordinator.api.priority import PriorityClass
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY

SCHEDULER: Final = "koord-scheduler"
ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"

_MILLI_CPU: Final = (100, 250, 500, 1000, 2000)
_MEMORY_MI: Final = (128, 256, 512, 1024, 2048)
_SEED: Final = 20
_TEAMS: Final = 50
_TIME: Final = "2026-01-01T00:00:00Z"

Document = dict[str, Any]


def equal(count: int) -> list[Document]:
    """Replicas of one workload."""
    return [_pod(number, 500, 512) for number in range(count)]


def mixed(count: int) -> list[Document]:
    """5 × 5 request sizes; 40 % batch pods, 10 % bound to a zone, 10 % spread over zones, drawn independently."""
    random = Random(_SEED)
    return [_mixed(number, random) for number in range(count)]


def different(count: int, first: int = 0) -> list[Document]:
    """No two of them have the same requests or labels, so that nothing found out about one holds for another."""
    documents = []
    for number in range(first, first + count):
        # Every pair of the two remainders occurs once before the first comes back: 997 × 1013 pods.
        document = _pod(number, 100 + number % 997, 100 + number % 1013)
        document["metadata"]["labels"] = {"app": f"app-{number}"}
        documents.append(document)
    return documents


def apart(count: int) -> list[Document]:
    """Replicas of which each wants a node where no other one is."""
    documents = equal(count)
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "equal"}}}
    for document in documents:
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        document["spec"]["affinity"] = {"podAntiAffinity": rule}
    return documents


def in_quotas(count: int) -> list[Document]:
    """Replicas that take turns in the leaves of ``quotas``."""
    leaves = [quota["metadata"]["name"] for quota in quotas() if "leaf" in quota["metadata"]["name"]]
    documents = equal(count)
    for number, document in enumerate(documents):
        document["metadata"]["labels"] = {"app": "equal", QUOTA_NAME: leaves[number % len(leaves)]}
    return documents


def quotas() -> list[Document]:
    """50 in three levels: 5, 15 and 30. A leaf is guaranteed 20 CPUs and borrows what 100 pods of half a CPU need."""
    documents = []
    for top in range(5):
        documents.append(_quota(f"top-{top}", "", 150, 3000))
        for middle in range(3):
            documents.append(_quota(f"middle-{top}-{middle}", f"top-{top}", 45, 1500))
            for leaf in range(2):
                documents.append(_quota(f"leaf-{top}-{middle}-{leaf}", f"middle-{top}-{middle}", 20, 200))
    return documents


def _quota(name: str, parent: str, least: int, most: int) -> Document:
    labels = {QUOTA_IS_PARENT: str("leaf" not in name).lower(), **({QUOTA_PARENT: parent} if parent else {})}
    spec = {key: {"cpu": str(cpu), "memory": f"{cpu}Gi"} for key, cpu in (("min", least), ("max", most))}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def in_gangs(gangs: int, members: int) -> list[Document]:
    """Replicas in the gangs of ``pod_groups``, one gang after another."""
    documents = equal(gangs * members)
    for number, document in enumerate(documents):
        document["metadata"]["labels"] = {"app": "equal", POD_GROUP: f"gang-{number // members:03d}"}
    return documents


def pod_groups(gangs: int, members: int) -> list[Document]:
    """Of gangs that need all their members."""
    return [{"metadata": {"name": f"gang-{number:03d}"}, "spec": {"minMember": members}} for number in range(gangs)]


def with_consumers(count: int) -> list[Document]:
    """Replicas of which every second one owns the ``reservations`` of its team."""
    documents = equal(count)
    for number, document in enumerate(documents[::2]):
        document["metadata"]["labels"] = {"app": "consumer", "team": f"team-{number % _TEAMS:02d}"}
    return documents


def reservations(count: int) -> list[Document]:
    """Each on a node of its own and with room for two replicas, for one of 50 teams in turn, Available already."""
    documents = []
    for number in range(count):
        size = {"cpu": "1", "memory": "1Gi"}
        container = {"name": "main", "image": "pause", "resources": {"requests": size}}
        owner = {"labelSelector": {"matchLabels": {"team": f"team-{number % _TEAMS:02d}"}}}
        conditions = [
            {"type": kind, "status": "True", "reason": reason, "lastProbeTime": _TIME, "lastTransitionTime": _TIME}
            for kind, reason in (("Scheduled", "Scheduled"), ("Ready", "Available"))
        ]
        documents.append(
            {
                "metadata": {"name": f"reservation-{number:03d}"},
                "spec": {
                    "template": {"spec": {"schedulerName": SCHEDULER, "containers": [container]}},
                    "owners": [owner],
                    "allocateOnce": False,
                },
                "status": {
                    "phase": "Available",
                    "nodeName": workload.node(number)["metadata"]["name"],
                    "allocatable": size,
                    "conditions": conditions,
                },
            }
        )
    return documents


def running(count: int, nodes: int) -> list[Document]:
    """Different pods that have a node already, evenly over the nodes."""
    documents = different(count, first=500_000)
    for number, document in enumerate(documents):
        document["spec"]["nodeName"] = workload.node(number % nodes)["metadata"]["name"]
    return documents


def _pod(number: int, milli_cpu: int, memory_mi: int) -> Document:
    name = f"pod-{number:06d}"
    return workload.pod(name, scheduler_name=SCHEDULER, cpu=f"{milli_cpu}m", memory=f"{memory_mi}Mi")


def _mixed(number: int, random: Random) -> Document:
    milli_cpu, memory_mi = random.choice(_MILLI_CPU), random.choice(_MEMORY_MI)
    document = _pod(number, milli_cpu, memory_mi)
    document["metadata"]["labels"] = {"app": "mixed"}
    if random.random() < 0.4:
        _make_batch(document, milli_cpu, memory_mi)
    if random.random() < 0.1:
        _bind_to_zone(document, workload.zone_of(random.randrange(workload.ZONES)))
    elif random.random() < 1 / 9:
        # A ninth of the other nine tenths.
        _spread_over_zones(document)
    return document


def _make_batch(document: Document, milli_cpu: int, memory_mi: int) -> None:
    amounts = {BATCH_CPU: str(milli_cpu), BATCH_MEMORY: f"{memory_mi}Mi"}
    document["metadata"]["labels"][QOS_CLASS] = "BE"
    document["spec"]["priorityClassName"] = PriorityClass.BATCH.value
    document["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}


def _bind_to_zone(document: Document, zone: str) -> None:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    document["spec"]["affinity"] = {"nodeAffinity": rule}


def _spread_over_zones(document: Document) -> None:
    document["metadata"]["labels"]["app"] = "spread"
    document["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "spread"}},
        }
    ]
