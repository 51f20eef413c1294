"""The work of a cluster under an upgrade: what stays all the time, what is half done meanwhile, and a load."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from koordinator.api.document import Document
from tests.docs.pages import pages
from tests.real.installation import shell
from tests.real.migration_programs import budget, created, deployment, is_ready, items
from tests.real.polling import until
from tests.real.upgrade.cluster import GROUPS, JOBS, PATHS, PODS, QUOTAS, RESERVATIONS, Cluster
from tests.real.upgrade.history import amounts, is_live, requests

_QUOTA: Final = "quota.scheduling.koordinator.sh"
QUOTA_LABEL: Final = f"{_QUOTA}/name"
TEAM: Final = {"borrower": QUOTA_LABEL, "lender": QUOTA_LABEL}
TEAM_CPUS: Final = 6
BORROWED: Final = 4
"""Pods of one CPU that stay; the quota is guaranteed one CPU of them."""
RESERVED: Final = ("owned", "free")
RESERVED_CPUS: Final = 3
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_REPLICAS: Final = 3
_DECIDED: Final = 60.0
_POLICY: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_POLICY_BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
_SHARE: Final = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
_PERIOD: Final = 0.25
"""Seconds between two pods of the load."""
_PROFILED: Final = "profile"


def pod(name: str, pool: str, cpu: str = "1", *, labels: Mapping[str, str] | None = None, **more: Any) -> Document:
    """``more``: ``resources`` beside the CPU, ``priority`` for the class, ``annotations``."""
    requests = {"cpu": cpu, "memory": "64Mi", **more.get("resources", {})}
    container = {"name": "main", "image": "pause", "resources": {"requests": requests, "limits": requests}}
    spec = {
        "schedulerName": "koord-scheduler",
        "nodeSelector": {"pool": pool},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        **({"priorityClassName": more["priority"]} if "priority" in more else {}),
    }
    metadata = {"name": name, "labels": dict(labels or {}), "annotations": more.get("annotations", {})}
    return {"metadata": metadata, "spec": spec}


def plain(name: str) -> Document:
    return pod(name, "roomy", "100m", labels={_PROFILED: "yes"})


def tight(name: str) -> Document:
    return pod(name, "tight")


def held(name: str) -> Document:
    """Into what Reservations leave of their node."""
    return pod(name, "held")


def borrowing(name: str) -> Document:
    return pod(name, "roomy", labels={QUOTA_LABEL: "borrower"})


def sharing(name: str) -> Document:
    return pod(name, "gpu", resources=_SHARE)


def pinned(name: str) -> Document:
    return pod(name, "pinned", "2", labels={"koordinator.sh/qosClass": "LSR"}, priority="koord-prod")


LOAD: Final[tuple[tuple[Callable[[str], Document], int], ...]] = (
    (plain, 8),
    (tight, 9),
    (held, 4),
    (borrowing, 4),
    (sharing, 4),
    (pinned, 4),
)
"""Kinds of pods, and how many of each there are at most. But for the first, more than there is room for."""


def standing(cluster: Cluster) -> list[str]:
    """What stays; the names of its pods, which have nodes."""
    plane = cluster.plane
    created(plane, PATHS["clustercolocationprofiles"], _profile())
    for document in (
        _quota("team", TEAM_CPUS, TEAM_CPUS, **{"is-parent": "true"}),
        _quota("lender", 5, TEAM_CPUS, parent="team"),
        _quota("borrower", 1, TEAM_CPUS, parent="team"),
    ):
        created(plane, QUOTAS, document)
    for name in RESERVED:
        created(plane, RESERVATIONS, _reservation(name))
    until(lambda: all(_is_available(each) for each in items(plane, RESERVATIONS)), _DECIDED, "Reservations")
    documents = [
        *(plain(f"standing-plain-{number}") for number in range(3)),
        *(borrowing(f"standing-borrowing-{number}") for number in range(BORROWED)),
        pod("standing-owner", "held", "2", labels={"owner-of": "owned"}),
        sharing("standing-sharing"),
        pod("standing-gpu", "gpu", resources={"koordinator.sh/gpu": "100"}),
        pinned("standing-pinned"),
    ]
    for document in documents:
        created(plane, PODS, document)
    names = [document["metadata"]["name"] for document in documents]
    wait_bound(cluster, names)
    return names


def wait_bound(cluster: Cluster, names: Sequence[str], seconds: float = _DECIDED) -> None:
    def waiting() -> list[str]:
        pods = cluster.recorder.latest("pods")
        return [name for name in names if not pods.get(name, {}).get("spec", {}).get("nodeName")]

    try:
        until(lambda: not waiting(), seconds, "nodes for all pods")
    except AssertionError as error:
        error.add_note(f"{waiting()}: {[cluster.pod(name).get('status') for name in waiting()]}")
        raise


def _profile() -> Document:
    return {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "batch"},
        "spec": {
            "selector": {"matchLabels": {_PROFILED: "yes"}},
            "qosClass": "BE",
            "priorityClassName": "koord-batch",
            "labels": {"admitted": "yes"},
        },
    }


def _quota(name: str, least: int, most: int, *, parent: str = "", **labels: str) -> Document:
    known = {f"{_QUOTA}/{key}": value for key, value in labels.items()}
    if parent:
        known[f"{_QUOTA}/parent"] = parent
    spec = {
        "min": {"cpu": str(least), "memory": f"{least}Gi"},
        "max": {"cpu": str(most), "memory": f"{most}Gi"},
    }
    api = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota"}
    return {**api, "metadata": {"name": name, "namespace": "default", "labels": known}, "spec": spec}


def _reservation(name: str) -> Document:
    spec = pod("template", "held", str(RESERVED_CPUS))["spec"]
    owners = [{"labelSelector": {"matchLabels": {"owner-of": name}}}]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {"template": {"spec": spec}, "owners": owners, "ttl": "0s", "allocateOnce": False},
    }


def _is_available(reservation: Document) -> bool:
    return bool(reservation.get("status", {}).get("phase") == "Available")


def wait_for_a_gate(cluster: Cluster, gang: str) -> Callable[[], None]:
    """A gang of which, with the original, the last member has a node in hand and waits for the first one, which is
    gated; call what is returned to remove the gate. In the other order the original may not try either: it is the
    member by which a gang is complete that it comes back to."""
    names = _gang(cluster, gang, "gang", {"schedulingGates": [{"name": "example.com/held"}]})
    _wait_for_probe(cluster, gang, "2")

    def finish() -> None:
        status, response = cluster.plane.request("PATCH", f"{PODS}/{names[0]}", {"spec": {"schedulingGates": None}})
        assert status == 200, response

    return finish


def wait_for_room(cluster: Cluster, gang: str) -> Callable[[], None]:
    """A gang of which, with ours, one member has a node in hand and waits for the other, for which there is no room;
    call what is returned to make room. Ours places no member while one is gated, and the original none without room."""
    blocker = f"{gang}-blocker"
    created(cluster.plane, PODS, pod(blocker, "gang"))
    wait_bound(cluster, [blocker])
    _gang(cluster, gang, "gang", mode="NonStrict")
    _wait_for_probe(cluster, gang, "1")
    return lambda: cluster.delete_pod(blocker)


def _wait_for_probe(cluster: Cluster, gang: str, cpu: str) -> None:
    """Until a pod that takes all that the member leaves, and more, has no room."""
    probes = count()
    until(lambda: not _fits(cluster, f"{gang}-probe-{next(probes)}", cpu), _DECIDED, f"{gang} to have a node in hand")


def _fits(cluster: Cluster, name: str, cpu: str) -> bool:
    """Whether a pod gets the node of gangs; it is gone then."""
    created(cluster.plane, PODS, pod(name, "gang", cpu))
    until(lambda: _is_decided(cluster.pod(name)), _DECIDED, f"a decision about {name}")
    fits = bool(cluster.node_of(name))
    cluster.delete_pod(name)
    return fits


def _is_decided(found: Document) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(each["type"] == "PodScheduled" for each in conditions)


def half_bound(cluster: Cluster, gang: str) -> list[str]:
    """A gang of which one member is bound, and the other cannot be before ``admit`` is called; its pods."""
    plane = cluster.plane
    expression = f"object.metadata.name != '{gang}-1'"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]}
    created(plane, _POLICY, {"metadata": {"name": gang}, "spec": spec})
    binding = {"policyName": gang, "validationActions": ["Deny"]}
    created(plane, _POLICY_BINDINGS, {"metadata": {"name": gang}, "spec": binding})
    trial = {"metadata": {"name": f"{gang}-1"}, "target": {"kind": "Node", "name": "roomy-0"}}
    path = f"{PODS}/{gang}-1/binding?dryRun=All"
    until(lambda: plane.request("POST", path, trial)[0] == 422, 30, "the policy")
    names = _gang(cluster, gang, "roomy")
    wait_bound(cluster, names[:1])
    return names


def admit(cluster: Cluster, gang: str) -> None:
    for path in (_POLICY_BINDINGS, _POLICY):
        cluster.plane.request("DELETE", f"{path}/{gang}")


def touch_pinned(cluster: Cluster) -> None:
    """When the original's scheduler starts, it may hear of a pod before it has heard of its node's CPUs. It then does
    not count those that the pod has, until the pod changes."""
    command = _on_the_page("kubectl annotate pods")
    # It fails where a pod has gone meanwhile, as those of the load do: the page says to repeat it then.
    shell(f"for try in 1 2 3 4 5; do {command} && exit; done; exit 1", cluster.plane.kubeconfig)


def recreate_pending_member(cluster: Cluster, gang: str, number: int, pool: str) -> None:
    """When the original's scheduler starts, it may hear of a pod before it has heard of a member with a node. It does
    not try that pod again, however the pod changes; its controller makes another one when it is deleted."""
    cluster.released.add(f"{gang}-{number}")
    command = _on_the_page("kubectl delete pods")
    shell(command.replace("team-a", "default").replace("=training", f"={gang}"), cluster.plane.kubeconfig)
    created(cluster.plane, PODS, _member(gang, number, pool))


def _on_the_page(begins: str) -> str:
    """The command of docs/upgrade.md that begins so."""
    page = next(each for each in pages() if each.name == "docs/upgrade.md")
    (found,) = (each.text for each in page.commands if each.text.startswith(begins))
    return found


def _gang(
    cluster: Cluster, gang: str, pool: str, first: Mapping[str, Any] | None = None, mode: str = "Strict"
) -> list[str]:
    """Of two pods; ``first`` is what the spec of the first one has beside what that of the other has."""
    api = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup"}
    spec = {"minMember": 2, "scheduleTimeoutSeconds": 600}
    metadata = {"name": gang, "annotations": {"gang.scheduling.koordinator.sh/mode": mode}}
    created(cluster.plane, GROUPS, {**api, "metadata": metadata, "spec": spec})
    documents = [_member(gang, number, pool) for number in range(2)]
    documents[0]["spec"] |= first or {}
    for document in documents:
        created(cluster.plane, PODS, document)
    return [document["metadata"]["name"] for document in documents]


def _member(gang: str, number: int, pool: str) -> Document:
    return pod(f"{gang}-{number}", pool, labels={"pod-group.scheduling.sigs.k8s.io": gang})


def open_migration(cluster: Cluster, name: str) -> None:
    """A PodMigrationJob whose eviction a PodDisruptionBudget refuses until that is deleted."""
    plane = cluster.plane
    document = deployment(_REPLICAS, nodeSelector={"pool": "moves"})
    created(plane, "/apis/apps/v1/namespaces/default/deployments", _named(document, name))
    created(plane, BUDGETS, _named(budget(minAvailable=_REPLICAS), name))

    def replicas() -> list[str]:
        pods = cluster.recorder.latest("pods").values()
        return [
            each["metadata"]["name"]
            for each in pods
            if each["metadata"].get("labels", {}).get("app") == name and is_ready(each)
        ]

    until(lambda: len(replicas()) == _REPLICAS, _DECIDED, f"pods of {name}")
    moving = min(replicas())
    spec = {"podRef": {"namespace": "default", "name": moving}, "mode": "ReservationFirst", "ttl": "10m"}
    api = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob"}
    created(plane, JOBS, {**api, "metadata": {"name": name}, "spec": spec})
    cluster.released.add(moving)
    until(lambda: job_status(cluster, name).get("nodeName"), _DECIDED, f"the Reservation of {name}")


def job_status(cluster: Cluster, name: str) -> Document:
    found: Document = cluster.plane.request("GET", f"{JOBS}/{name}")[1].get("status", {})
    return found


def _named(document: Document, name: str) -> Document:
    """A document of tests.real.migration_programs for the Deployment ``name`` in place of web."""
    text = json.dumps(document).replace('"web"', json.dumps(name))
    found: Document = json.loads(text)
    return found


class Load:
    """Pods that are created and deleted all the time, by a thread. ``created`` are all names, ``refused`` why some were
    not created."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ends = threading.Event()
        self._runs = threading.Event()
        self._idle = threading.Event()
        self.created: dict[str, list[str]] = {make.__name__: [] for make, _ in LOAD}
        self.refused: list[str] = []
        self._there: dict[str, list[str]] = {make.__name__: [] for make, _ in LOAD}

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        self._runs.set()
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._runs.set()
            thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._idle.clear()
        self._runs.clear()
        self._idle.wait(30)
        try:
            yield
        finally:
            self._runs.set()

    def _run(self) -> None:
        number = 0
        while not self._ends.wait(_PERIOD):
            make, most = LOAD[number % len(LOAD)]
            self._add(make, f"load-{make.__name__}-{number}")
            if len(self._there[make.__name__]) > most:
                self._remove(make)
            number += 1
            if not self._runs.is_set():
                self._idle.set()
                self._runs.wait()

    def _add(self, make: Callable[[str], Document], name: str) -> None:
        status, response = self._cluster.plane.request("POST", PODS, make(name))
        if status != 201:
            self.refused.append(f"{name}: {response.get('message')}")
            return
        self.created[make.__name__].append(name)
        self._there[make.__name__].append(name)

    def _remove(self, make: Callable[[str], Document]) -> None:
        """The oldest; where there is room for all, only when it has got its node."""
        names = self._there[make.__name__]
        if make is plain and not self._cluster.node_of(names[0]):
            return
        self._cluster.delete_pod(names.pop(0))


def quota_used(cluster: Cluster) -> tuple[int, int]:
    """Thousandths of CPUs that the quota ``borrower`` says are used, and those of its pods that have nodes."""
    status = cluster.plane.request("GET", f"{QUOTAS}/borrower")[1].get("status", {})
    pods = items(cluster.plane, PODS)
    mine = [each for each in pods if each["metadata"].get("labels", {}).get(QUOTA_LABEL) == "borrower"]
    counted = sum(requests(each)["cpu"] for each in mine if is_live(each))
    return amounts(status.get("used", {}))["cpu"], counted
