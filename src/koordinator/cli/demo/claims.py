"""The claims that the report of a day stands on, and the figures that decide them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from koordinator.api.priority import PriorityClass
from koordinator.cli.demo.claim import Claim, clock, some
from koordinator.cli.demo.day import (
    CPU_THRESHOLD_PERCENT,
    FAULTY,
    FAULTY_FROM_HOUR,
    FIRST_BATCH_HOUR,
    FIRST_BATCH_POD,
    SAFE_PERCENT,
    TOO_LARGE,
)
from koordinator.cli.demo.hot_node import availability_claim, cooling_claim, staying_claim
from koordinator.cli.demo.observation import KEPT_OFF, Day, Mark, PlacedPod
from koordinator.cli.demo.rush import rush_claim
from koordinator.cli.demo.workloads import gang_claim, quota_claim, reservation_claim

_LEAST_GAIN: Final = 1.5
_OF_THE_NODE: Final = ("cpu", "memory", "pods")
_LONGEST_HOURS: Final = 1.0
_LAST_REPORTS: Final = 3


def utilisation(day: Day, since: float, until: float = 24.0) -> tuple[float, float]:
    """Mean CPU use between two hours in percent of capacity: of online pods and system alone, and of everything."""
    capacity = sum(day.capacity.values())
    moments = [moment for moment in day.moments if since <= moment.hour < until and moment.nodes]
    if not moments or not capacity:
        return 0.0, 0.0
    total = sum(usage.used for moment in moments for usage in moment.nodes.values()) / len(moments)
    batch = sum(usage.batch for moment in moments for usage in moment.nodes.values()) / len(moments)
    return (total - batch) * 100 / capacity, total * 100 / capacity


def placed_on_hot_nodes(day: Day) -> list[PlacedPod]:
    """Batch pods that the scheduler sent to a node all of whose last reports were over the threshold.

    A pod that is first seen at its node with one report was placed after it or after the one before: three count.
    """
    wrong = []
    for pod in day.pods.values():
        hour = day.workloads.placed.get(pod.name) if pod.node else None
        if pod.priority_class is not PriorityClass.BATCH or hour is None or pod.name in day.placed_by_hand:
            continue
        reports = [moment.nodes[pod.node] for moment in day.moments if moment.hour <= hour and pod.node in moment.nodes]
        limit = day.capacity[pod.node] * CPU_THRESHOLD_PERCENT / 100
        if len(reports) >= _LAST_REPORTS and all(usage.used > limit for usage in reports[-_LAST_REPORTS:]):
            wrong.append(pod)
    return wrong


def overbooked(day: Day) -> list[str]:
    """Nodes on which pods were seen to request more than there is, with the resource. Batch resources do not count:
    what is offered of them shrinks under the pods that have them, as online load rises."""
    return sorted(
        f"{node} {resource}"
        for (node, resource), amount in day.most_requested.items()
        if resource in _OF_THE_NODE and amount > day.allocatable[node].get(resource, 0)
    )


def longest_above(day: Day, percent: int) -> float:
    """For how many hours at a stretch some node used more than this of its CPU."""
    longest = 0.0
    for node, capacity in day.capacity.items():
        since: float | None = None
        for moment in day.moments:
            usage = moment.nodes.get(node)
            if usage is None or usage.used * 100 <= capacity * percent:
                since = None
                continue
            since = moment.hour if since is None else since
            longest = max(longest, moment.hour - since)
    return longest


def batch_capacity_at(day: Day, online: Callable[[Iterable[tuple[int, int]]], tuple[int, int]]) -> int:
    """CPUs offered to batch pods while these ran and online pods used the least (``min``) or the most (``max``)."""
    hours = {reading.hour: reading.batch_cpu for reading in day.batch_capacity}
    seen = [
        (sum(usage.online for usage in moment.nodes.values()), hours[moment.hour])
        for moment in day.moments
        if moment.nodes and moment.hour >= FIRST_BATCH_HOUR and moment.hour in hours
    ]
    return online(seen)[1] // 1000 if seen else 0


def claims(day: Day) -> list[Claim]:
    """Everything that must hold for the demonstration to be one."""
    return [
        _all_placed("online", PriorityClass.PROD, day),
        _all_placed("batch", PriorityClass.BATCH, day),
        _not_overbooked(day),
        _gain(day),
        Claim(
            f"the load-aware filter kept pods off hot nodes ({day.kept_off_hot_nodes} pods)",
            day.kept_off_hot_nodes > 0,
            f"some pods are placed while LoadAwareScheduling keeps them off nodes above {CPU_THRESHOLD_PERCENT} % CPU",
            f"{day.kept_off_hot_nodes} pods; the most that a node was seen to use: {_most_used(day)}",
            (f"koord explain pod {FIRST_BATCH_POD}", f"the metric {KEPT_OFF} of koord-scheduler"),
        ),
        _none_on_hot_nodes(day),
        _explained(day),
        _follows_online_load(day),
        _nobody_hurt(day),
        _set_aside(day),
        rush_claim(day.rush),
        gang_claim(day.workloads),
        quota_claim(day.workloads),
        reservation_claim(day.workloads),
        cooling_claim(day.hot_node),
        availability_claim(day.hot_node),
        staying_claim(day.hot_node),
    ]


def _not_overbooked(day: Day) -> Claim:
    over = overbooked(day)
    amounts = [
        f"{node}: {amount} of {day.allocatable[node].get(resource, 0)} {resource}"
        for (node, resource), amount in day.most_requested.items()
        if f"{node} {resource}" in over
    ]
    return Claim(
        f"no node has more CPU, memory or pods requested than it can give ({', '.join(over) or 'none seen'})",
        not over and bool(day.most_requested),
        "the requests of the pods on each node stay within its allocatable amounts",
        some(amounts) if day.most_requested else "no pod was seen on a node",
        (f"koord explain node {over[0].split()[0] if over else 'node-0'}",),
    )


def _gain(day: Day) -> Claim:
    alone, together = utilisation(day, FIRST_BATCH_HOUR + 1, 21.0)
    return Claim(
        f"batch pods raise CPU use at least {_LEAST_GAIN:g} times ({alone:.0f} % to {together:.0f} %)",
        together >= alone * _LEAST_GAIN > 0,
        f"from 08:00 to 21:00, all pods use at least {_LEAST_GAIN:g} times the CPU that online pods and system use",
        f"{together:.1f} % with and {alone:.1f} % without batch pods, in {len(day.moments)} looks; "
        f"{_offered(day)} CPUs were offered to batch pods at most",
        ("koord explain node node-0", f"koord explain pod {FIRST_BATCH_POD}"),
    )


def _none_on_hot_nodes(day: Day) -> Claim:
    hot = placed_on_hot_nodes(day)
    where = [f"{pod.name} to {pod.node} at {clock(day.workloads.placed[pod.name])}" for pod in hot]
    return Claim(
        f"no batch pod was sent to a node that had stayed above {CPU_THRESHOLD_PERCENT} % CPU ({len(hot)} were)",
        not hot,
        f"no batch pod goes to a node whose last {_LAST_REPORTS} reports were above {CPU_THRESHOLD_PERCENT} % CPU",
        some(where),
        (f"koord explain node {hot[0].node if hot else 'node-0'}", f"koord explain pod {_first(hot)}"),
    )


def _explained(day: Day) -> Claim:
    said = day.explained
    seen = (
        "it was not asked for"
        if said is None
        else f"explanation {said.message!r}, condition {said.condition!r}, events {some([*said.notes]) or 'none'}"
    )
    return Claim(
        "the pod that no node can take says why, and its explanation, condition and event say the same",
        said is not None and said.agrees,
        f"the message of koord explain pod {TOO_LARGE} is that of its condition PodScheduled and of an event",
        seen,
        (f"koord explain pod {TOO_LARGE}", f"kubectl describe pod {TOO_LARGE}"),
    )


def _follows_online_load(day: Day) -> Claim:
    quiet, busy = batch_capacity_at(day, min), batch_capacity_at(day, max)
    return Claim(
        f"koord-manager offered less to batch pods when online pods were busy ({quiet} CPUs at their quietest, "
        f"{busy} at their busiest)",
        0 < busy < quiet,
        "less batch CPU is allocatable on all nodes together at the hour at which online pods use the most than at "
        "that at which they use the least",
        f"{quiet} CPUs at their quietest, {busy} at their busiest, in {len(day.batch_capacity)} looks",
        ("koord explain node node-0", "kubectl get nodemetric node-0 -o yaml"),
    )


def _nobody_hurt(day: Day) -> Claim:
    hurt = longest_above(day, SAFE_PERCENT)
    return Claim(
        f"online pods were not hurt: no node used more than {SAFE_PERCENT} % of its CPU for longer than "
        f"{_LONGEST_HOURS:g} h (the longest was {hurt:.1f} h)",
        hurt <= _LONGEST_HOURS and bool(day.moments),
        f"no node stays above {SAFE_PERCENT} % of its CPU for longer than {_LONGEST_HOURS:g} h",
        f"one did for {hurt:.1f} h; the most that a node was seen to use: {_most_used(day)}",
        (f"koord explain node {_most_used(day).split()[0]}",),
    )


def _set_aside(day: Day) -> Claim:
    marks = [
        f"{name}: " + ", ".join(f"{clock(mark.hour)} {mark.reason or 'normal'} {mark.batch_cpu}" for mark in marks)
        for name, marks in day.marks.items()
    ]
    return Claim(
        f"{FAULTY}, whose agent reported nonsense, and no other node was marked as abnormal, lent nothing to batch "
        "pods meanwhile and lends again",
        set(day.marks) == {FAULTY} and was_set_aside(day.marks[FAULTY]),
        f"{FAULTY} alone gets the condition ColocationAbnormal after {clock(FAULTY_FROM_HOUR)}, with 0 milli-CPU for "
        "batch pods while it is True, and more than 0 when it is False again",
        f"conditions, and milli-CPU for batch pods: {some(marks)}",
        (f"koord explain node {FAULTY}", f"kubectl get nodemetric {FAULTY} -o yaml"),
    )


def was_set_aside(marks: Sequence[Mark]) -> bool:
    """Whether a node was abnormal, lent nothing while it was, and has been lending again since.

    It lends again a moment before the mark comes off, which the last look at the mark may have seen.
    """
    lent = [mark.batch_cpu for mark in marks if mark.reason]
    last = marks[-1]
    return bool(lent) and lent[0] == 0 and not any(lent[:-1]) and not last.reason and last.batch_cpu > 0


def _all_placed(what: str, priority_class: PriorityClass, day: Day) -> Claim:
    pods = [pod for pod in day.pods.values() if pod.priority_class is priority_class]
    pending = [pod.name for pod in pods if not pod.node]
    placed = len(pods) - len(pending)
    return Claim(
        f"every {what} pod was placed ({placed} of {len(pods)})",
        bool(pods) and not pending,
        f"at the end of the day each {what} pod has a node",
        f"{len(pending)} of {len(pods)} have none: {some(pending)}; {_offered(day)} CPUs were offered to batch pods",
        (f"koord explain pod {pending[0] if pending else FIRST_BATCH_POD}",),
    )


def _offered(day: Day) -> int:
    return max((reading.batch_cpu for reading in day.batch_capacity), default=0) // 1000


def _most_used(day: Day) -> str:
    uses = [
        (usage.used * 100 // day.capacity[name], name, moment.hour)
        for moment in day.moments
        for name, usage in moment.nodes.items()
    ]
    percent, name, hour = max(uses, default=(0, "node-0", 0.0))
    return f"{name} {percent} % at {clock(hour)}"


def _first(pods: Sequence[PlacedPod]) -> str:
    return pods[0].name if pods else FIRST_BATCH_POD
