"""How much of what prod pods have requested they will not use, and what their peak will be; pure.

Two predictors (pkg/koordlet/prediction/peak_predictor.go). One adds up the peaks of the pods; the other takes the peak
of their sum and of the system, which is lower, since pods do not peak together. What both allow may be lent out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from koordinator.api.node import Node
from koordinator.api.priority import PriorityClass
from koordinator.api.quantity import Format, Quantity
from koordinator.koordlet.observe.prediction.models import SYSTEM_MODEL, Peak, node_item_model
from koordinator.koordlet.observe.prediction.options import PredictionOptions
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.model.raw_allocatable import raw_allocatable

POD_PREDICTOR: Final = "podReclaimablePredictor"
PRIORITY_PREDICTOR: Final = "priorityReclaimablePredictor"
MIN_PREDICTOR: Final = "minPredictor"
"""The names of the original's metrics; the last one is what is reported."""

_PROD: Final = (PriorityClass.PROD, PriorityClass.NONE)
"""A pod of no class counts as prod."""
_MILLI: Final = 10**6
_WHOLE: Final = 10**9


class Amount(NamedTuple):
    """CPU and memory, each in units of 10**-9."""

    cpu: int
    memory: int

    @classmethod
    def of(cls, peak: Peak, margin_percent: int) -> Amount:
        """A peak and its safety margin, in whole milli-CPU and bytes, cut. Reckoned in floats, as the original does."""
        factor = (100 + margin_percent) / 100
        return cls(int(float(peak.cpu) * factor) * _MILLI, int(float(peak.memory) * factor) * _WHOLE)

    def plus(self, other: Amount) -> Amount:
        return Amount(self.cpu + other.cpu, self.memory + other.memory)

    def above(self, other: Amount) -> Amount:
        """What is left without the other, of each resource at least nothing."""
        return Amount(max(self.cpu - other.cpu, 0), max(self.memory - other.memory, 0))

    def least(self, other: Amount) -> Amount:
        return Amount(min(self.cpu, other.cpu), min(self.memory, other.memory))

    def most(self, other: Amount) -> Amount:
        return Amount(max(self.cpu, other.cpu), max(self.memory, other.memory))

    def quantities(self) -> dict[str, str]:
        """As the wire has it."""
        return {"cpu": str(Quantity(self.cpu)), "memory": str(Quantity(self.memory, Format.BINARY_SI))}


_NOTHING: Final = Amount(0, 0)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Amounts by predictor. Both are empty while there is no forecast, and then ``problem`` says why."""

    reclaimable: Mapping[str, Amount] = field(default_factory=dict)
    peak: Mapping[str, Amount] = field(default_factory=dict)
    problem: str = ""


@dataclass(slots=True)
class _Sums:
    """Over prod pods."""

    peaks: Amount = _NOTHING
    unpredicted: Amount = _NOTHING
    """Requests of pods of which no peak is known."""
    unused: Amount = _NOTHING
    """Requests less peaks, pod by pod."""
    requests: Amount = _NOTHING
    """Of the pods that the second predictor counts."""


def forecast_prod(
    pods: Iterable[NodePod], node: Node, peak_of: Callable[[str], Peak | None], rules: PredictionOptions, now: datetime
) -> Forecast:
    """The forecast for the prod pods among ``pods``, of which each is there once.

    ``peak_of`` is called with the UIDs of pods, and with parts of the node. A pod that is not older than the cold start
    is not known yet: its request counts as its peak.
    """
    used, problem = _used_by_system_and_prod(peak_of, rules.margin_percent)
    if used is None:
        return Forecast(problem=problem)
    sums = _Sums()
    for pod in pods:
        # What a pod that ends uses now is no forecast, and what it has requested is about to be free anyway.
        if pod.priority_class in _PROD and not pod.is_terminating and not pod.has_finished:
            _add_pod(sums, pod, peak_of, rules, now)
    peak = {POD_PREDICTOR: sums.peaks.plus(sums.unpredicted), PRIORITY_PREDICTOR: used}
    peak[MIN_PREDICTOR] = peak[POD_PREDICTOR].most(used)
    allocatable = _allocatable(node)
    if allocatable is None:
        return Forecast(peak=peak, problem="the Node has no status.allocatable")
    reclaimable = {
        POD_PREDICTOR: allocatable.above(sums.peaks).least(sums.unused),
        PRIORITY_PREDICTOR: allocatable.above(used).least(sums.requests.above(used)),
    }
    reclaimable[MIN_PREDICTOR] = reclaimable[POD_PREDICTOR].least(reclaimable[PRIORITY_PREDICTOR])
    return Forecast(reclaimable, peak)


def _add_pod(
    sums: _Sums, pod: NodePod, peak_of: Callable[[str], Peak | None], rules: PredictionOptions, now: datetime
) -> None:
    request = Amount(pod.requests.get("cpu", 0), pod.requests.get("memory", 0))
    created = pod.pod.metadata.creation_timestamp
    if created is not None and now - created <= rules.cold_start:
        sums.unpredicted = sums.unpredicted.plus(request)
        sums.requests = sums.requests.plus(request)
        return
    peak = peak_of(pod.uid)
    if peak is None:
        sums.unpredicted = sums.unpredicted.plus(request)
        return
    expected = Amount.of(peak, rules.margin_percent)
    sums.peaks = sums.peaks.plus(expected)
    sums.unused = sums.unused.plus(_rounded_up(request).above(expected))
    sums.requests = sums.requests.plus(request)


def _rounded_up(request: Amount) -> Amount:
    return Amount(-(-request.cpu // _MILLI) * _MILLI, -(-request.memory // _WHOLE) * _WHOLE)


def _used_by_system_and_prod(peak_of: Callable[[str], Peak | None], margin_percent: int) -> tuple[Amount | None, str]:
    cpu = memory = 0
    for model in (SYSTEM_MODEL, *(node_item_model(item.value) for item in _PROD)):
        peak = peak_of(model)
        if peak is None:
            return None, f"nothing has been learned of {model} yet"
        cpu += peak.cpu
        memory += peak.memory
    return Amount.of(Peak(cpu, memory), margin_percent), ""


def _allocatable(node: Node) -> Amount | None:
    """Before it was amplified, where it was."""
    allocatable = raw_allocatable(node)
    if not allocatable:
        return None
    zero = Quantity(0)
    return Amount(allocatable.get("cpu", zero).nanos, allocatable.get("memory", zero).nanos)
