"""A gang, two quotas and a Reservation in the day: what is offered, what is seen of them, and what is claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.kinds import ELASTIC_QUOTAS, POD_GROUPS, RESERVATIONS
from koordinator.api.labels import POD_GROUP, QUOTA_IS_PARENT, QUOTA_NAME, QUOTA_PARENT
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.api.resource_names import BATCH_CPU
from koordinator.cli.demo.claim import Claim, clock, some
from koordinator.cli.demo.day import Arrival, batch_pod, pod_of

GANG: Final = "training"
MEMBERS: Final = 8
_GANG_HOUR: Final = 8.0
COMPLETE_HOUR: Final = 10.5
"""When the last members of the gang are created."""
_FIRST_MEMBERS: Final = 6

BORROWER: Final = "analytics"
LENDER: Final = "reports"
OWN_CPUS: Final = {BORROWER: 8, LENDER: 16}
"""The min of each quota, in CPUs for batch pods."""
_BORROWING_HOUR: Final = 19.5
ASKING_HOUR: Final = 21.0
"""When the lender's pods come."""
_CPUS_A_POD: Final = 2
_BORROWING_PODS: Final = 20
_RUN_MINUTES: Final = 120
_LENDER_MINUTES: Final = 600
"""Until the day is over: its pods may be placed an hour apart, and all of them must be seen at once."""

RESERVED: Final = "release"
RELEASE: Final = "checkout-next"
RESERVED_CPUS: Final = 4
RESERVATION_HOUR: Final = 3.5
RELEASE_HOUR: Final = 22.5
"""When batch pods have had all day to take the room. By day, they keep many nodes at the threshold of the load-aware
filter, and the one with the room may be among these."""
_LATE_HOURS: Final = 1.5


def arrivals() -> list[Arrival]:
    """What comes besides services and batch pods, in order."""
    return [
        Arrival(RESERVATION_HOUR, "a Reservation", (), ((RESERVATIONS, _reservation()),)),
        Arrival(_GANG_HOUR, "a part of a gang", _members(range(_FIRST_MEMBERS)), ((POD_GROUPS, _pod_group()),)),
        Arrival(COMPLETE_HOUR, "the rest of the gang", _members(range(_FIRST_MEMBERS, MEMBERS))),
        Arrival(RELEASE_HOUR, "the release that room is held for", (_release(),)),
        Arrival(
            _BORROWING_HOUR,
            f"pods of the quota {BORROWER}",
            _of_quota(BORROWER, _BORROWING_PODS, _RUN_MINUTES),
            tuple((ELASTIC_QUOTAS, document) for document in _quotas()),
        ),
        Arrival(
            ASKING_HOUR,
            f"pods of the quota {LENDER}",
            _of_quota(LENDER, OWN_CPUS[LENDER] // _CPUS_A_POD, _LENDER_MINUTES),
        ),
    ]


def _pod_group() -> dict[str, Any]:
    return {**_header("scheduling.sigs.k8s.io", "PodGroup", GANG), "spec": {"minMember": MEMBERS}}


def _members(numbers: range) -> tuple[dict[str, Any], ...]:
    labels = {POD_GROUP: GANG}
    return tuple(batch_pod(f"{GANG}-{number}", 60, labels) for number in numbers)


def _quotas() -> list[dict[str, Any]]:
    everything = sum(OWN_CPUS.values())
    return [
        _quota("teams", everything, everything, {QUOTA_IS_PARENT: "true"}),
        *(_quota(name, own, everything, {QUOTA_PARENT: "teams"}) for name, own in OWN_CPUS.items()),
    ]


def _quota(name: str, least: int, most: int, labels: Mapping[str, str]) -> dict[str, Any]:
    document = _header("scheduling.sigs.k8s.io", "ElasticQuota", name)
    document["metadata"]["labels"] = dict(labels)
    amounts = {key: {BATCH_CPU: str(cpus * 1000)} for key, cpus in (("min", least), ("max", most))}
    return {**document, "spec": amounts}


def _of_quota(quota: str, count: int, minutes: int) -> tuple[dict[str, Any], ...]:
    return tuple(batch_pod(f"{quota}-{number:02d}", minutes, {QUOTA_NAME: quota}) for number in range(count))


def _reservation() -> dict[str, Any]:
    template = {"schedulerName": "koord-scheduler", "containers": _release()["spec"]["containers"]}
    owner = {"labelSelector": {"matchLabels": {"app": RELEASE}}}
    return {
        **_header("scheduling.koordinator.sh", "Reservation", RESERVED),
        "spec": {"template": {"spec": template}, "owners": [owner]},
    }


def _release() -> dict[str, Any]:
    return pod_of(RELEASE, "koord-prod", "LS", {"cpu": str(RESERVED_CPUS), "memory": "8Gi"}, {"app": RELEASE})


def _header(group: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": {"name": name}}


@dataclass(slots=True)
class Workloads:
    """What is seen of them over the day. Hours are those of the day."""

    placed: dict[str, float] = field(default_factory=dict)
    """Pod -> when it was first seen on a node."""
    nodes: dict[str, str] = field(default_factory=dict)
    used: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    """(hour, quota -> CPUs that its pods have on nodes)."""
    reservations: list[tuple[float, str, str]] = field(default_factory=list)
    """(hour, phase, node) of the Reservation."""

    def see(self, hour: float, pods: Sequence[Pod], reservations: Sequence[Reservation]) -> None:
        used = dict.fromkeys(OWN_CPUS, 0)
        for pod in pods:
            if not pod.spec.node_name:
                continue
            self.placed.setdefault(pod.metadata.name, hour)
            self.nodes[pod.metadata.name] = pod.spec.node_name
            quota = pod.metadata.labels.get(QUOTA_NAME)
            if quota in used and pod.status.phase not in ("Succeeded", "Failed"):
                used[quota] += _CPUS_A_POD
        self.used.append((hour, used))
        for each in reservations:
            if each.metadata.name == RESERVED:
                self.reservations.append((hour, each.status.phase, each.status.node_name))

    def gang_hours(self) -> tuple[float, float] | None:
        """When the first and the last member were placed; None while one is not."""
        hours = [self.placed.get(f"{GANG}-{number}") for number in range(MEMBERS)]
        known = [hour for hour in hours if hour is not None]
        return (min(known), max(known)) if len(known) == MEMBERS else None

    def most_borrowed(self) -> int:
        """The most CPUs that the borrower used before the lender requested its own."""
        return max((used.get(BORROWER, 0) for hour, used in self.used if hour < ASKING_HOUR), default=0)

    def given_back_at(self) -> float | None:
        """When the lender had what is its own, and the borrower no more than its own."""
        for hour, used in self.used:
            if used.get(LENDER, 0) >= OWN_CPUS[LENDER] and used.get(BORROWER, 0) <= OWN_CPUS[BORROWER]:
                return hour
        return None

    def reserved_node(self) -> str:
        """The node that held the capacity until the release came; empty when none did."""
        held = [node for hour, phase, node in self.reservations if phase == "Available" and hour < RELEASE_HOUR]
        return held[-1] if held and len(set(held)) == 1 else ""


def gang_claim(seen: Workloads) -> Claim:
    """What is said of the gang, and whether it is so."""
    hours = seen.gang_hours()
    between = "some were never placed" if hours is None else f"placed from {clock(hours[0])} to {clock(hours[1])}"
    missing = [name for number in range(MEMBERS) if (name := f"{GANG}-{number}") not in seen.placed]
    return Claim(
        f"the gang {GANG} waited for the last of its {MEMBERS} pods, of {clock(COMPLETE_HOUR)}, and ran as one "
        f"({between})",
        hours is not None and hours[0] >= COMPLETE_HOUR and hours[1] - hours[0] <= _LATE_HOURS,
        f"no pod of {GANG} is placed before {clock(COMPLETE_HOUR)}, and all {MEMBERS} within {_LATE_HOURS:g} h",
        f"{between}; not placed: {some(missing)}",
        (f"koord explain gang {GANG}", f"koord explain pod {missing[0] if missing else f'{GANG}-0'}"),
    )


def quota_claim(seen: Workloads) -> Claim:
    borrowed, back = seen.most_borrowed(), seen.given_back_at()
    own, lent = OWN_CPUS[BORROWER], OWN_CPUS[LENDER]
    ending = "which it never had back" if back is None else f"which had its {lent} CPUs back at {clock(back)}"
    used = "; ".join(
        f"{clock(hour)}: " + ", ".join(f"{quota} {cpus}" for quota, cpus in cpus_of.items())
        for hour, cpus_of in seen.used
        if hour >= _BORROWING_HOUR
    )
    # Pods of the borrower are not killed: the lender waits until they have ended.
    return Claim(
        f"the quota {BORROWER} used {borrowed} CPUs, {own} of its own and the others lent by {LENDER}, {ending}",
        borrowed > own and back is not None and back >= ASKING_HOUR,
        f"{BORROWER} uses more than its {own} CPUs between {clock(_BORROWING_HOUR)} and {clock(ASKING_HOUR)}, and "
        f"later {LENDER} uses its {lent} and {BORROWER} at most its {own}",
        f"CPUs used at {used or 'no time'}",
        (f"koord explain quota {BORROWER}", f"koord explain quota {LENDER}", f"koord explain pod {BORROWER}-00"),
    )


def reservation_claim(seen: Workloads) -> Claim:
    node = seen.reserved_node()
    is_used = bool(seen.reservations) and seen.reservations[-1][1] == "Succeeded"
    states: list[str] = []
    for hour, phase, where in seen.reservations:
        state = f"{phase or 'Pending'} on {where or 'no node'}"
        if not states or not states[-1].endswith(state):
            states.append(f"from {clock(hour)} {state}")
    return Claim(
        f"a Reservation held {RESERVED_CPUS} CPUs on {node or 'no node'} until {RELEASE} came and took them",
        bool(node) and is_used and seen.nodes.get(RELEASE) == node,
        f"the Reservation {RESERVED} is Available on one node until {clock(RELEASE_HOUR)}, {RELEASE} is placed there, "
        "and the Reservation has Succeeded",
        f"the Reservation was {', '.join(states) or 'never seen'}; {RELEASE} was placed on "
        f"{seen.nodes.get(RELEASE) or 'no node'}",
        (f"koord explain reservation {RESERVED}", f"koord explain pod {RELEASE}"),
    )
