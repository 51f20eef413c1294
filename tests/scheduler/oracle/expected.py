"""What a scheduler has to know of a cluster, computed anew from the objects of the API in the plainest way.

Amounts of 0 are left out: nobody can tell them from none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api import annotations as keys
from koordinator.api.cpu_list import parse_cpu_list
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kinds import ELASTIC_QUOTAS, NODES, PODS, RESERVATIONS
from koordinator.api.labels import OPERATING_MODE, POD_GROUP, QUOTA_NAME, QUOTA_PARENT
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.quantity import Quantity
from koordinator.api.reservation import Reservation
from koordinator.model.pod_requests import canonical, non_zero_requests, pod_requests
from tests.scheduler.oracle.scripted_cluster import ScriptedCluster

DEFAULT: Final = "koordinator-default-quota"
Amounts = dict[str, int]


@dataclass(slots=True)
class Held:
    """What a pod that is only assumed holds, which no record of the API says, and the pod as it was decided about."""

    node_name: str
    pod: Pod = field(default_factory=Pod)
    reservation: str = ""
    """The uid of the Reservation that it takes from."""
    devices: dict[str, dict[int, Amounts]] = field(default_factory=dict)
    cpus: frozenset[int] = frozenset()


@dataclass(slots=True)
class NodeFacts:
    allocatable: Amounts = field(default_factory=dict)
    requested: Counter[str] = field(default_factory=Counter)
    non_zero: Counter[str] = field(default_factory=Counter)
    pods: set[str] = field(default_factory=set)
    """Their uids, those of Reservations among them."""
    devices: dict[tuple[str, int], Counter[str]] = field(default_factory=dict)
    """By type and minor number."""
    cpus: Counter[int] = field(default_factory=Counter)
    """How many pods hold each CPU."""
    ports: Counter[int] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    """How many pods have the label ``app`` with this value."""

    def too_much(self, without: NodeFacts) -> dict[str, tuple[int, int]]:
        """Of what there is more than ``without`` some pod, although there is too little: both amounts."""
        found = {
            name: (amount, self.allocatable.get(name, 0))
            for name, amount in self.requested.items()
            if amount > max(without.requested[name], self.allocatable.get(name, 0))
        }
        return found | {f"port {port}": (n, 1) for port, n in self.ports.items() if n > max(1, without.ports[port])}


@dataclass(slots=True)
class ReservationFacts:
    node_name: str
    kept: Amounts
    """What it keeps free: what it holds less what its owners there request."""
    owners: set[str]


@dataclass(slots=True)
class Facts:
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    reservations: dict[str, ReservationFacts] = field(default_factory=dict)
    """By uid."""
    quotas: dict[str, tuple[Amounts, Amounts]] = field(default_factory=dict)
    """By name: what its pods request, and what those of them use that have a node; with those of its children."""
    gangs: dict[str, tuple[set[str], set[str]]] = field(default_factory=dict)
    """By id: the names of its pods, and of those that are bound."""


@dataclass(slots=True)
class _Placed:
    pod: Pod
    uid: str
    request: Amounts
    non_zero: Amounts
    held: Held


def expected_facts(cluster: ScriptedCluster, assumed: Mapping[str, Held], without: str = "") -> Facts:
    """``assumed``: by uid, the pods and Reservations that have a node only for the scheduler. ``without``: leave out
    the one with this uid."""
    pods: list[Pod] = [
        pod
        for pod in cluster.objects(PODS)
        if pod.status.phase not in ("Succeeded", "Failed") and pod.metadata.uid != without
    ]
    reservations: list[Reservation] = [each for each in cluster.objects(RESERVATIONS) if each.metadata.uid != without]
    placed = [found for pod in pods if (found := _placed(pod, assumed)) is not None]
    facts = Facts(nodes=_nodes(cluster.objects(NODES)))
    for each in placed:
        _count(facts.nodes.get(each.held.node_name), each)
        _count_operating(facts, each, placed)
    for reservation in reservations:
        _count_reservation(facts, reservation, placed, assumed)
    facts.quotas = _quotas(cluster.objects(ELASTIC_QUOTAS), pods, {each.uid for each in placed if _counts(facts, each)})
    for pod in pods:
        if name := pod.metadata.labels.get(POD_GROUP):
            members, bound = facts.gangs.setdefault(f"{pod.metadata.namespace}/{name}", (set(), set()))
            members.add(pod.metadata.name)
            if pod.spec.node_name:
                bound.add(pod.metadata.name)
    for node in facts.nodes.values():
        node.requested, node.non_zero = +node.requested, +node.non_zero
    return facts


def _counts(facts: Facts, placed: _Placed) -> bool:
    """Whether the API has it on a node, or the node that it is assumed on is there."""
    return bool(placed.pod.spec.node_name) or placed.held.node_name in facts.nodes


def _nodes(nodes: Iterable[Node]) -> dict[str, NodeFacts]:
    return {
        node.metadata.name: NodeFacts(
            {name: canonical(name, each.nanos) for name, each in node.status.allocatable.items() if each.nanos}
        )
        for node in nodes
    }


def _placed(pod: Pod, assumed: Mapping[str, Held]) -> _Placed | None:
    uid = pod.metadata.uid
    held = _recorded(pod) if pod.spec.node_name else assumed.get(uid)
    if held is None:
        return None
    counted = pod if pod.spec.node_name else held.pod
    return _Placed(counted, uid, _request(counted), _non_zero(counted), held)


def _request(pod: Pod) -> Amounts:
    return {name: amount for name, nanos in pod_requests(pod).items() if (amount := canonical(name, nanos))}


def _non_zero(pod: Pod) -> Amounts:
    counted = non_zero_requests(pod)
    return {name: canonical(name, counted.get(name, 0)) for name in ("cpu", "memory")}


def _recorded(pod: Pod) -> Held:
    return _read(Held(pod.spec.node_name, pod), pod.metadata.annotations)


def _read(held: Held, annotations: Mapping[str, str]) -> Held:
    """With what the annotations say that it holds."""
    for device_type, devices in _json(annotations, keys.DEVICE_ALLOCATED).items():
        for each in devices:
            amounts = {name: Quantity.parse(text).value for name, text in each["resources"].items()}
            held.devices.setdefault(device_type, {})[each["minor"]] = amounts
    held.cpus = frozenset(parse_cpu_list(_json(annotations, keys.RESOURCE_STATUS).get("cpuset", "")))
    held.reservation = _json(annotations, keys.RESERVATION_ALLOCATED).get("uid", "")
    return held


def _json(annotations: Mapping[str, str], key: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(annotations.get(key) or "{}")
    except ValueError:
        return {}
    return found


def _count(node: NodeFacts | None, placed: _Placed) -> None:
    if node is None:
        return
    node.pods.add(placed.uid)
    node.requested.update({**placed.request, "pods": 1})
    node.non_zero.update(placed.non_zero)
    _count_held(node, placed.held)
    spec = placed.pod.spec
    ports = {port.host_port for each in spec.containers for port in each.ports if port.host_port}
    node.ports.update(ports)
    node.labels[placed.pod.metadata.labels.get("app", "")] += 1


def _count_held(node: NodeFacts, held: Held) -> None:
    for device_type, minors in held.devices.items():
        for minor, amounts in minors.items():
            node.devices.setdefault((device_type, minor), Counter()).update(amounts)
    node.cpus.update(held.cpus)


def _count_operating(facts: Facts, placed: _Placed, all_: Iterable[_Placed]) -> None:
    """A pod in operating mode is a Reservation as well, which keeps nothing free on the node beside it."""
    node_name = placed.pod.spec.node_name
    if placed.pod.metadata.labels.get(OPERATING_MODE) != "Reservation" or node_name not in facts.nodes:
        return
    owners = [each for each in all_ if (each.held.reservation, each.held.node_name) == (placed.uid, node_name)]
    taken = _sum(each.request for each in owners)
    kept = {name: max(0, amount - taken[name]) for name, amount in placed.request.items()}
    facts.reservations[placed.uid] = ReservationFacts(node_name, +Counter(kept), {each.uid for each in owners})


def _sum(all_: Iterable[Amounts]) -> Counter[str]:
    found = Counter[str]()
    for each in all_:
        found.update(each)
    return found


def _count_reservation(
    facts: Facts, reservation: Reservation, placed: Iterable[_Placed], assumed: Mapping[str, Held]
) -> None:
    uid, status, template = reservation.metadata.uid, reservation.status, reservation.spec.template
    node_name = status.node_name or (assumed[uid].node_name if uid in assumed else "")
    if not node_name or status.phase in ("Succeeded", "Failed") or template is None:
        return
    requested = _request(Pod(spec=template.spec))
    allocatable = {name: canonical(name, each.nanos) for name, each in status.allocatable.items()}
    holds = {**requested, **allocatable}
    # Pods take from it once it is available; while its node is not there, nobody can tell what they hold.
    there = placed if status.node_name in facts.nodes else ()
    owners = [each for each in there if each.held.reservation == uid and each.held.node_name == node_name]
    taken = _sum(each.request for each in owners)
    non_zero = _sum(each.non_zero for each in owners)
    kept = {name: max(0, amount - taken[name]) for name, amount in holds.items()}
    at_first = Counter({name: holds.get(name, 0) for name in ("cpu", "memory")})
    if holds != requested:
        # As with the original, a container that holds it all takes the place of the template's, which stay without
        # requests.
        for _ in template.spec.containers:
            at_first.update({"cpu": 100, "memory": 200 << 20})
    if status.node_name:
        facts.reservations[uid] = ReservationFacts(node_name, +Counter(kept), {each.uid for each in owners})
    node = facts.nodes.get(node_name)
    if node is not None:
        node.pods.add(uid)
        node.requested.update({**kept, "pods": 1})
        held = assumed[uid] if uid in assumed else _read(Held(node_name), reservation.metadata.annotations)
        _count_held(node, held)
        node.non_zero.update({name: max(0, amount - non_zero[name]) for name, amount in at_first.items()})
        node.labels[template.metadata.labels.get("app", "")] += 1


def _quotas(
    quotas: Iterable[ElasticQuota], pods: Iterable[Pod], placed: set[str]
) -> dict[str, tuple[Amounts, Amounts]]:
    quotas = [quota for quota in quotas if not quota.metadata.name.startswith("koordinator-")]
    most = {quota.metadata.name: set(quota.spec.max) for quota in quotas}
    parents = {quota.metadata.name: quota.metadata.labels.get(QUOTA_PARENT, "") for quota in quotas}
    found = {name: (Counter[str](), Counter[str]()) for name in (*most, DEFAULT)}
    for pod in pods:
        name = pod.metadata.labels.get(QUOTA_NAME, "")
        name = name if name in most else DEFAULT
        # The default quota limits CPU and memory alone.
        counted = {key: amount for key, amount in _request(pod).items() if key in most.get(name, ("cpu", "memory"))}
        for each in {name, parents.get(name, "")} & set(found):
            found[each][0].update(counted)
            if pod.metadata.uid in placed:
                found[each][1].update(counted)
    return {name: (dict(+request), dict(+used)) for name, (request, used) in found.items()}
