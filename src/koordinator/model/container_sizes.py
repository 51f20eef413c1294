"""What becomes of the requests and limits of a pod's containers by a recommendation. Pure.

Amounts are written under the names by which the pod requests them, so that a batch pod gets batch CPU. A limit stays in
its proportion to the request, as with Kubernetes' vertical pod autoscaler, so that a pod stays in its class of quality
of service. CPU of LSR and LSE pods is a whole number of cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from koordinator.api.pod import ResourceList
from koordinator.api.priority import PriorityClass
from koordinator.api.qos import QoSClass
from koordinator.api.quantity import Format, Quantity
from koordinator.api.recommendation import AmountChange, ContainerChange
from koordinator.api.resource_names import CPU, EXTENDED_CPUS, EXTENDED_MEMORIES, MEMORY, extended_name
from koordinator.model.recommendations import Amounts

_NAMES: Final[Mapping[str, Sequence[str]]] = {CPU: (CPU, *EXTENDED_CPUS), MEMORY: (MEMORY, *EXTENDED_MEMORIES)}
"""cpu, memory -> the names by which pods request it."""
_MILLI: Final = 1000
WHOLE_CORES: Final = frozenset({QoSClass.LSR, QoSClass.LSE})
"""The classes whose pods have CPUs of their own, so that they request whole ones."""


class SizedContainer(NamedTuple):
    """A container as it is now."""

    name: str
    requests: ResourceList
    limits: ResourceList


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one resource: CPU in milli-cores, memory in bytes; None is unbounded."""

    minimum: int | None = None
    maximum: int | None = None
    ratio: int | None = None
    """In thousandths, how many times its request a limit may be."""

    def clamp(self, amount: int) -> int:
        if self.minimum is not None:
            amount = max(amount, self.minimum)
        return amount if self.maximum is None else min(amount, self.maximum)


@dataclass(frozen=True, slots=True)
class Step:
    """How far a request may move at once, as a part of what it is; None is as far as it goes."""

    raised: float | None = None
    lowered: float | None = None

    def bound(self, before: int, wanted: int) -> int:
        if self.raised is not None:
            wanted = min(wanted, before + max(int(before * self.raised), 1))
        if self.lowered is not None:
            wanted = max(wanted, before - int(before * self.lowered))
        return wanted


@dataclass(frozen=True, slots=True)
class PodShape:
    """What of the pod matters beside its containers."""

    qos: QoSClass = QoSClass.NONE
    priority: PriorityClass = PriorityClass.NONE
    """Of a pod without any request: the class by whose names it requests."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """The rules of one Recommendation."""

    requests_only: bool = False
    """Limits stay, and no request exceeds its limit."""
    threshold: float = 0.0
    """The part by which some request has to differ for anything to change."""
    step: Step = field(default_factory=Step)
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    """Resource name -> what the namespace allows a container: its request at least, its limit at most."""


def decide_sizes(
    containers: Sequence[SizedContainer], recommended: Mapping[str, Amounts], shape: PodShape, sizing: Sizing
) -> Mapping[str, ContainerChange]:
    """The changes by container; without those that nothing becomes of."""
    sizes = [_Size(each, name, resource) for each in containers for resource, name in _names(each, containers, shape)]
    sizes = [each for each in sizes if recommended.get(each.container.name, {}).get(each.resource)]
    is_due = False
    for each in sizes:
        goal = each.capped(recommended[each.container.name][each.resource], sizing)
        is_due = is_due or abs(goal - each.before) > sizing.threshold * each.before
        each.after = each.capped(sizing.step.bound(each.before, goal) if each.before else goal, sizing)
    if not is_due:
        return {}
    if shape.qos in WHOLE_CORES:
        _round_to_cores(containers, sizes, sizing)
    return {
        name: ContainerChange(requests=requests, limits=limits)
        for name, requests, limits in _changes(containers, sizes, sizing)
    }


class _Size:
    """Of one resource of one container: CPU in milli-cores, memory in bytes; 0 is none."""

    def __init__(self, container: SizedContainer, name: str, resource: str) -> None:
        self.container = container
        self.name = name
        self.resource = resource
        self.limit = amount_of(name, container.limits.get(name))
        self.before = amount_of(name, container.requests.get(name)) or self.limit
        self.after = self.before

    def capped(self, wanted: int, sizing: Sizing) -> int:
        """As much of it as the limit and the namespace allow."""
        if sizing.requests_only and self.limit:
            wanted = min(wanted, self.limit)
        bounds = sizing.bounds.get(self.name)
        if bounds is None:
            return wanted
        most = bounds.maximum
        if most is not None and self.limit and not sizing.requests_only:
            # The limit grows with the request, and it is what is bounded.
            most = most * self.before // self.limit
        least = bounds.minimum
        if bounds.ratio and self.limit and sizing.requests_only:
            least = max(least or 0, -(-self.limit * _MILLI // bounds.ratio))
        return Bounds(least, most).clamp(wanted)

    def new_limit(self, sizing: Sizing) -> int:
        """0 where there is none."""
        if not self.limit or sizing.requests_only:
            return self.limit
        return max(-(-self.limit * self.after // self.before), self.after)


def _changes(
    containers: Sequence[SizedContainer], sizes: Sequence[_Size], sizing: Sizing
) -> Iterable[tuple[str, dict[str, AmountChange], dict[str, AmountChange]]]:
    for container in containers:
        requests, limits = dict[str, AmountChange](), dict[str, AmountChange]()
        for size in sizes:
            if size.container is not container:
                continue
            for found, known, amount in (
                (requests, container.requests, size.after),
                (limits, container.limits, size.new_limit(sizing)),
            ):
                before = known.get(size.name)
                if amount and amount != amount_of(size.name, before):
                    found[size.name] = AmountChange(before=before, after=quantity_of(size.name, amount))
        if requests or limits:
            yield container.name, requests, limits


def _names(
    container: SizedContainer, containers: Sequence[SizedContainer], shape: PodShape
) -> Iterable[tuple[str, str]]:
    """cpu, memory -> the name by which the container requests it, or else the other containers of the pod."""
    for resource, names in _NAMES.items():
        for each in (container, *containers):
            found = next((name for name in names if name in each.requests or name in each.limits), "")
            if found:
                break
        else:
            found = extended_name(resource, shape.priority) or resource
        yield resource, found


def _round_to_cores(containers: Sequence[SizedContainer], sizes: Sequence[_Size], sizing: Sizing) -> None:
    """The pod as a whole requests whole cores: its largest containers get what is lacking, as far as they may. All keep
    what they had where that is not enough."""
    ours = [each for each in sizes if each.name == CPU]
    if not ours:
        return
    sized = {each.container.name for each in ours}
    total = sum(each.after for each in ours)
    total += sum(amount_of(CPU, each.requests.get(CPU)) for each in containers if each.name not in sized)
    lacking = -total % _MILLI
    for each in sorted(ours, key=lambda each: -each.after):
        more = each.capped(each.after + lacking, sizing) - each.after
        each.after += more
        lacking -= more
    if lacking:
        for each in ours:
            each.after = each.before


def amount_of(name: str, quantity: Quantity | None) -> int:
    """CPU in milli-cores, which is what the CPU of the classes is counted in, and everything else in units."""
    if quantity is None:
        return 0
    return quantity.milli if name == CPU else quantity.value


def quantity_of(name: str, amount: int) -> Quantity:
    if name == CPU:
        return Quantity.from_milli(amount)
    return Quantity.from_value(amount, Format.BINARY_SI if name in _NAMES[MEMORY] else Format.DECIMAL_SI)


def describe(changes: Mapping[str, ContainerChange]) -> str:
    """For people: ``main: cpu 100m -> 582m, memory limit 1Gi -> 2Gi``."""
    texts = []
    for name, change in sorted(changes.items()):
        parts = [
            f"{resource}{kind} {each.before if each.before is not None else 'none'} -> {each.after}"
            for kind, amounts in (("", change.requests), (" limit", change.limits))
            for resource, each in sorted(amounts.items())
        ]
        texts.append(f"{name}: {', '.join(parts)}")
    return "; ".join(texts)
