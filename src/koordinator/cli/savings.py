"""What the pods of Recommendations request, what is recommended, and what that would save. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from koordinator.api.codec import DecodeError, decode
from koordinator.api.recommendation import DETAILS, POLICY, ContainerDetails, Recommendation
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.manager.recommender.observed_pods import ObservedPod
from koordinator.manager.recommender.policy import PolicyError, Rules, read_policy
from koordinator.model.container_sizes import Bounds, Sizing
from koordinator.model.recommendations import RecommendationIndex, Recommended

_MILLI: Final = 1000


@dataclass(slots=True)
class Sum:
    """Of all pods: CPU in milli-cores, memory in bytes."""

    requested: int = 0
    recommended: int = 0

    @property
    def saved(self) -> int:
        """Below 0 if more is recommended than is requested."""
        return self.requested - self.recommended

    def add(self, other: Sum) -> None:
        self.requested += other.requested
        self.recommended += other.recommended


@dataclass(slots=True)
class Saving:
    """One Recommendation with the pods that go by it."""

    recommended: Recommended
    rules: Rules
    unusable: str
    """Why it must not be used; empty if it may be."""
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    """What the namespace allows a container, by resource name."""
    pods: list[ObservedPod] = field(default_factory=list)
    cpu: Sum = field(default_factory=Sum)
    memory: Sum = field(default_factory=Sum)

    @property
    def name(self) -> str:
        return self.recommended.key

    @property
    def sizing(self) -> Sizing:
        """All at once, by whatever it differs."""
        return Sizing(requests_only=self.rules.requests_only, bounds=self.bounds)

    @property
    def target(self) -> str:
        """The workload, or how its pods are selected."""
        target = self.recommended.source.spec.target
        if target.workload is not None:
            return f"{target.workload.kind.lower()}/{target.workload.name}"
        return "pods by label"

    @property
    def confidence(self) -> float | None:
        """That of the container of which least is known; None before there is any."""
        try:
            details = decode(
                self.recommended.source.metadata.annotations.get(DETAILS, "{}"), dict[str, ContainerDetails]
            )
        except DecodeError:
            return None
        return min((each.confidence for each in details.values()), default=None)

    def add(self, pod: ObservedPod) -> None:
        self.pods.append(pod)
        for container in pod.containers:
            amounts = self.recommended.containers.get(container.name, {})
            for total, resource, requested in (
                (self.cpu, CPU, round(container.cpu_request * _MILLI)),
                (self.memory, MEMORY, round(container.memory_request)),
            ):
                total.requested += requested
                total.recommended += amounts.get(resource, requested)

    def document(self) -> dict[str, Any]:
        """For programs: CPU in milli-cores, memory in bytes, of all pods together."""
        return {
            "recommendation": self.name,
            "target": self.target,
            "updateMode": self.rules.update_mode,
            "confidence": self.confidence,
            "unusable": self.unusable,
            "pods": sorted(pod.metadata.name for pod in self.pods),
            "containers": {name: dict(amounts) for name, amounts in sorted(self.recommended.containers.items())},
            **{
                name: {"requested": each.requested, "recommended": each.recommended, "saved": each.saved}
                for name, each in ((CPU, self.cpu), (MEMORY, self.memory))
            },
        }


def savings_of(sources: Sequence[Recommendation], pods: Iterable[ObservedPod], now: datetime) -> list[Saving]:
    """One of each Recommendation, by name."""
    index = RecommendationIndex()
    for source in sources:
        index.put(source)
    found = {source.metadata.key: _saving(index, source, now) for source in sources}
    for pod in pods:
        own = index.find(pod.metadata)
        if own is not None and not pod.is_finished:
            found[own.key].add(pod)
    return [found[key] for key in sorted(found)]


def _saving(index: RecommendationIndex, source: Recommendation, now: datetime) -> Saving:
    own = index.get(source.metadata.namespace, source.metadata.name)
    try:
        rules, mistake = read_policy(source.metadata.annotations.get(POLICY)), ""
    except PolicyError as error:
        rules, mistake = Rules(), str(error)
    unusable = mistake or own.unusable(now, low_confidence_is_used=rules.low_confidence_is_used)
    return Saving(own, rules, unusable)


def sums_of(savings: Iterable[Saving]) -> Mapping[str, Sum]:
    """Of all that may be used, by resource."""
    cpu, memory = Sum(), Sum()
    for each in savings:
        if not each.unusable:
            cpu.add(each.cpu)
            memory.add(each.memory)
    return {CPU: cpu, MEMORY: memory}
