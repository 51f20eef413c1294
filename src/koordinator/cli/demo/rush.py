"""A node of the day on which online load rises while batch pods run: what is offered, what is seen, what is claimed.

The node's koordlet, which is simulated as the others are, holds the batch pods down and lets them go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.nodemetric import NodeMetric, PodMetricInfo
from koordinator.cli.demo.claim import Claim, clock
from koordinator.cli.demo.day import Arrival, batch_pod, pod_of
from koordinator.cluster.nodes.pod_runtime import RUN_TIME_ANNOTATION
from koordinator.cluster.nodes.usage import BEHAVIOUR_ANNOTATION

NODE: Final = "node-0"
RUSH: Final = "flash-sale"
INDEXER: Final = "indexer"
INDEXERS: Final = 4
SUPPRESSION: Final = {
    "clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}
}
"""The strategy for thresholds of the SLO ConfigMap."""
_BATCH_HOUR: Final = 7.5
RUSH_HOUR: Final = 11.0
_RUSH_MINUTES: Final = 180
_BATCH_MINUTES: Final = 630
"""Until the evening, when quotas need the capacity."""
_CPUS: Final = "6"
_LEAST_DROP: Final = 0.6
"""To which share of what they used the batch pods are held down, or less."""
_ENOUGH: Final = 0.9
"""Of what they used before: they are no longer suppressed."""


def arrivals() -> list[Arrival]:
    """The pods name their node, so that they meet there."""
    indexers = tuple(batch_pod(f"{INDEXER}-{number}", _BATCH_MINUTES) for number in range(INDEXERS))
    annotations = {RUN_TIME_ANNOTATION: f"{_RUSH_MINUTES}m", BEHAVIOUR_ANNOTATION: "batch"}
    rush = pod_of(RUSH, "koord-prod", "LS", {"cpu": "100m", "memory": "512Mi"}, None, annotations)
    # It requests little and uses much for a while, as services do.
    rush["spec"]["containers"][0]["resources"]["limits"]["cpu"] = _CPUS
    rush["spec"]["restartPolicy"] = "Never"
    for pod in (*indexers, rush):
        pod["spec"]["nodeName"] = NODE
    return [
        Arrival(_BATCH_HOUR, f"batch pods on {NODE}", indexers),
        Arrival(RUSH_HOUR, "an online pod with a rush", (rush,)),
    ]


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the node's report: CPU in milli-CPU."""

    hour: float
    batch: int
    """Of the batch pods that were offered here."""
    rush: int
    said: Mapping[str, Any] | None
    """What the report says of suppression."""


@dataclass(slots=True)
class Rush:
    """What is seen of the node."""

    looks: list[Look] = field(default_factory=list)

    def see(self, hour: float, metric: NodeMetric) -> None:
        pods = {pod.name: pod for pod in metric.status.pods_metric}
        indexers = [pod for name, pod in pods.items() if name.startswith(f"{INDEXER}-")]
        said = next((found for pod in indexers if (found := _said(pod)) is not None), None)
        rush = _cpu(pods[RUSH]) if RUSH in pods else 0
        self.looks.append(Look(hour, sum(map(_cpu, indexers)), rush, said))

    def before(self) -> Look | None:
        """When the batch pods used the most before the rush."""
        return max((each for each in self.looks if each.hour < RUSH_HOUR), key=lambda each: each.batch, default=None)

    def held(self) -> Look | None:
        """When they used the least of the times at which the report said that they were suppressed."""
        said = (each for each in self.looks if each.said is not None and each.hour >= RUSH_HOUR)
        return min(said, key=lambda each: each.batch, default=None)

    def limit_of(self, held: Look) -> int:
        """What they might use at most, in milli-CPU. A report averages what was used since the one before, while the
        limit may have fallen: that of the look before counts, too."""
        until = [each for each in self.looks if each.hour <= held.hour][-2:]
        limits: list[int] = [round(each.said["cpus"] * 1000) for each in until if each.said is not None]
        return max(limits)

    def released(self) -> Look | None:
        """The first look that shows them as they were before, after they had been held down. Other batch pods may have
        come to the node meanwhile: then all of them together may still be kept below the threshold."""
        before, held = self.before(), self.held()
        if before is None or held is None:
            return None
        later = (each for each in self.looks if each.hour > held.hour)
        return next((each for each in later if each.batch >= _ENOUGH * before.batch), None)


def _said(pod: PodMetricInfo) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = ((pod.extensions or {}).get(EXTENSIONS_MEMBER) or {}).get("suppression")
    return found


def _cpu(pod: PodMetricInfo) -> int:
    amount = pod.pod_usage.resources.get("cpu")
    return 0 if amount is None else amount.milli


def rush_claim(seen: Rush) -> Claim:
    """What is said of the node, and whether it is so."""
    before, held, released = seen.before(), seen.held(), seen.released()
    text, holds, least = f"the batch pods of {NODE} made room for {RUSH} and had it back", False, ""
    if before is None or held is None or held.said is None:
        text += " (they were never suppressed)"
    else:
        back = "never let go" if released is None else f"{_cpus(released.batch)} at {clock(released.hour)}"
        figures = f"{_cpus(before.batch)} at {clock(before.hour)}, {_cpus(held.batch)} at {clock(held.hour)}, {back}"
        limit, share = seen.limit_of(held), _LEAST_DROP * before.batch
        text += f" ({figures}, at most {_cpus(limit)} allowed)"
        holds = held.batch <= min(limit * 1.05, share) and released is not None
        least = f" to at most {_cpus(min(round(limit * 1.05), round(share)))}"
    looks = [
        f"{clock(look.hour)}: {_cpus(look.batch)}, {RUSH} {_cpus(look.rush)}"
        + (f", suppressed to {look.said['cpus']:g}" if look.said is not None else "")
        for look in seen.looks
        if look.hour >= RUSH_HOUR - 1 and look.hour <= RUSH_HOUR + _RUSH_MINUTES / 60 + 2
    ]
    return Claim(
        text,
        holds,
        f"from {clock(RUSH_HOUR)} on the NodeMetric of {NODE} says that batch pods are suppressed{least}, and after "
        f"{RUSH} has ended that they use {_ENOUGH * 100:g} % of before again",
        f"the batch pods used {'; '.join(looks) or 'nothing'}",
        (f"koord explain node {NODE}", f"kubectl get nodeslo {NODE} -o yaml"),
    )


def rush_sentence(seen: Rush) -> str:
    """For the report; empty where no pod was suppressed."""
    held, released = seen.held(), seen.released()
    if held is None or held.said is None:
        return ""
    until = "" if released is None else f", until {clock(released.hour)}"
    return (
        f"At {clock(held.hour)} {RUSH} used {_cpus(held.rush)} of {NODE}, and its batch pods were suppressed to "
        f"{held.said['cpus']:g} CPUs{until}. koord explain node {NODE} said why: {held.said['why']}."
    )


def _cpus(milli: int) -> str:
    return f"{milli / 1000:.1f} CPUs"
