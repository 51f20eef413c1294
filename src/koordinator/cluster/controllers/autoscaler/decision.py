"""What an autoscaler does: the new number of replicas, its status, and the events that say why; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

import msgspec

from koordinator.api.document import Document
from koordinator.api.meta import Condition
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.autoscaler.metrics import Measured, MetricResult, propose
from koordinator.cluster.controllers.autoscaler.scaling_rules import History, Moment, Reason, normalize
from koordinator.cluster.controllers.autoscaler.types import Autoscaler, AutoscalerStatus, PodMetrics, Scale
from koordinator.cluster.controllers.conditions import find_condition, whole_seconds

_ABLE: Final = "AbleToScale"
_ACTIVE: Final = "ScalingActive"
_LIMITED: Final = "ScalingLimited"
_GOT_SCALE: Final = ("SucceededGetScale", "the HPA controller was able to get the target's current scale")
_DISABLED: Final = ("ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
_UNABLE: Final = "the HPA was unable to compute the replica count: "


@dataclass(slots=True)
class _Conditions:
    """As they are set one after the other. Each keeps the time at which its status last changed."""

    now: datetime
    items: list[Condition] = field(default_factory=list)

    def set(self, type_: str, is_so: bool, reason: Reason) -> None:
        old, status = find_condition(self.items, type_), "True" if is_so else "False"
        since = old.last_transition_time if old is not None and old.status == status else whole_seconds(self.now)
        made = Condition(type=type_, status=status, reason=reason[0], message=reason[1], last_transition_time=since)
        if old is None:
            self.items = [*self.items, made]
        else:
            self.items = [made if each is old else each for each in self.items]


def _copied(conditions: list[Condition], now: datetime) -> _Conditions:
    return _Conditions(now, [msgspec.structs.replace(each) for each in conditions])


@dataclass(frozen=True, slots=True)
class Note:
    """An event about the autoscaler."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Warning"


@dataclass(frozen=True, slots=True)
class Situation:
    autoscaler: Autoscaler
    scale: Scale
    pods: Sequence[Pod] = ()
    metrics: Sequence[PodMetrics] | str = ()
    """Of the pods; or the reason why there are none."""
    selector_error: str = ""
    """Why the selector of the scale is not one."""
    rivals: Sequence[str] = ()
    """The keys of other autoscalers that select some of the same pods."""


@dataclass(frozen=True, slots=True)
class Decision:
    """``replicas`` is what the target is to have; None if it stays as it is."""

    status: AutoscalerStatus
    notes: list[Note] = field(default_factory=list)
    history: History = field(default_factory=History)
    replicas: int | None = None
    why: str = ""

    def rescaled(self, autoscaler: Autoscaler, before: int, now: datetime) -> Decision:
        """Once the target has the new number."""
        assert self.replicas is not None
        conditions = _copied(self.status.conditions, now)
        text = f"the HPA controller was able to update the target scale to {self.replicas}"
        conditions.set(_ABLE, True, ("SucceededRescale", text))
        status = msgspec.structs.replace(
            self.status,
            conditions=conditions.items,
            desired_replicas=self.replicas,
            last_scale_time=whole_seconds(now),
        )
        note = Note("SuccessfulRescale", f"New size: {self.replicas}; reason: {self.why}", "Normal")
        history = self.history.rescaled(autoscaler.spec.behavior, before, self.replicas, now)
        return replace(self, status=status, notes=[*self.notes, note], history=history)

    def not_rescaled(self, autoscaler: Autoscaler, error: str, now: datetime) -> Decision:
        """Once the target has refused it."""
        conditions = _copied(self.status.conditions, now)
        text = f"the HPA controller was unable to update the target scale: {error}"
        conditions.set(_ABLE, False, ("FailedUpdateScale", text))
        status = msgspec.structs.replace(
            self.status, conditions=conditions.items, desired_replicas=autoscaler.status.desired_replicas
        )
        note = Note("FailedRescale", f"New size: {self.replicas}; reason: {self.why}; error: {error}")
        return replace(self, status=status, notes=[*self.notes, note])


def without_scale(autoscaler: Autoscaler, error: str, history: History, now: datetime) -> Decision:
    """Of an autoscaler whose target has no scale."""
    conditions = _copied(autoscaler.status.conditions, now)
    text = f"the HPA controller was unable to get the target's current scale: {error}"
    conditions.set(_ABLE, False, ("FailedGetScale", text))
    status = msgspec.structs.replace(autoscaler.status, conditions=conditions.items)
    return Decision(status, [Note("FailedGetScale", error)], history)


def reads_metrics(autoscaler: Autoscaler, scale: Scale) -> bool:
    """Whether the number of replicas depends on them."""
    spec, current = autoscaler.spec, scale.spec.replicas
    return spec.least <= current <= spec.max_replicas


def decide(situation: Situation, history: History, now: datetime) -> Decision:
    autoscaler, current = situation.autoscaler, situation.scale.spec.replicas
    spec = autoscaler.spec
    conditions = _copied(autoscaler.status.conditions, now)
    conditions.set(_ABLE, True, _GOT_SCALE)
    history = history if history.recommended else replace(history, recommended=(Moment(now, current),))
    if current == 0 and spec.least != 0:
        conditions.set(_ACTIVE, False, _DISABLED)
        return Decision(_status(autoscaler, conditions, current, current, None), history=history)
    if reads_metrics(autoscaler, situation.scale):
        return _by_metrics(situation, conditions, history, now)
    above = current > spec.max_replicas
    wanted = spec.max_replicas if above else spec.least
    why = f"Current number of replicas {'above Spec.MaxReplicas' if above else 'below Spec.MinReplicas'}"
    return Decision(_status(autoscaler, conditions, current, wanted, None), [], history, wanted, why)


def _by_metrics(situation: Situation, conditions: _Conditions, history: History, now: datetime) -> Decision:
    autoscaler, current = situation.autoscaler, situation.scale.spec.replicas
    refusal = _refusal(situation)
    if refusal is not None:
        note, text = refusal
        reason = note.reason if note.reason != "SelectorRequired" else "InvalidSelector"
        conditions.set(_ACTIVE, False, (reason, text))
        return _failed(autoscaler, conditions, current, None, [note], note.message, history)
    measured = Measured(situation.pods, situation.metrics, current, now)
    results = [propose(autoscaler, metric, measured) for metric in autoscaler.spec.metrics]
    shown = [each.status for each in results]
    failures = [each for each in results if each.failure]
    best = max((each for each in results if not each.failure), key=lambda each: each.replicas, default=None)
    # Metrics that are not known might ask for more.
    if best is None or (failures and best.replicas < current):
        notes = [Note(each.reason, each.failure) for each in failures]
        conditions.set(_ACTIVE, False, _condition_of(failures))
        return _failed(autoscaler, conditions, current, shown, notes, _summary(failures, len(results)), history)
    found = f"the HPA was able to successfully calculate a replica count from {best.name}"
    conditions.set(_ACTIVE, True, ("ValidMetricFound", found))
    normal = normalize(autoscaler.spec, current, best.replicas, history, now)
    conditions.set(_ABLE, True, normal.able)
    conditions.set(_LIMITED, normal.is_limited, normal.limited)
    why = f"{best.name} above target" if best.replicas > current else ""
    why = "All metrics below target" if best.replicas < current else why
    status = _status(autoscaler, conditions, current, normal.replicas, shown)
    notes = [Note(each.reason, each.failure) for each in failures]
    changed = normal.replicas if normal.replicas != current else None
    return Decision(status, notes, normal.history, changed, why)


def _refusal(situation: Situation) -> tuple[Note, str] | None:
    """Why nothing can be said of the pods; the event, and the text of the condition."""
    selector = situation.scale.status.selector
    if not selector:
        return Note("SelectorRequired", "selector is required"), "the HPA target's scale is missing a selector"
    if situation.selector_error:
        text = f"couldn't convert selector into a corresponding internal selector object: {situation.selector_error}"
        return Note("InvalidSelector", text), text
    if situation.rivals:
        keys = " ".join((situation.autoscaler.metadata.key, *situation.rivals))
        text = f"pods by selector {selector} are controlled by multiple HPAs: [{keys}]"
        return Note("AmbiguousSelector", text), text
    return None


def _condition_of(failures: Sequence[MetricResult]) -> tuple[str, str]:
    if not failures:
        return "InvalidMetricSourceType", f"{_UNABLE}there are no metrics"
    return failures[0].reason, f"{_UNABLE}{failures[0].failure}"


def _summary(failures: Sequence[MetricResult], count: int) -> str:
    first = failures[0].wrapped if failures else "there are no metrics"
    return f"invalid metrics ({len(failures)} invalid out of {count}), first error is: {first}"


def _failed(
    autoscaler: Autoscaler,
    conditions: _Conditions,
    current: int,
    shown: list[Document] | None,
    notes: list[Note],
    summary: str,
    history: History,
) -> Decision:
    status = _status(autoscaler, conditions, current, autoscaler.status.desired_replicas, shown)
    return Decision(status, [*notes, Note("FailedComputeMetricsReplicas", summary)], history)


def _status(
    autoscaler: Autoscaler, conditions: _Conditions, current: int, desired: int, shown: list[Document] | None
) -> AutoscalerStatus:
    return AutoscalerStatus(
        last_scale_time=autoscaler.status.last_scale_time,
        current_replicas=current,
        desired_replicas=desired,
        current_metrics=shown,
        conditions=conditions.items,
    )
