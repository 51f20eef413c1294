"""Which pod of a workload is resized in place next, which resize is undone, and which pod is evicted. Pure.

One pod of a workload is resized at a time, by a bounded step, and watched: the next one follows when it is well, and
the same pod when it has been well for longer. What was there before is in an annotation of the pod, so that a resize
can be undone by whoever leads by then. A workload of which a resize was undone is left alone for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from koordinator.api.annotations import CONFIG_MIRROR
from koordinator.api.codec import DecodeError, decode
from koordinator.api.labels import QOS_CLASS
from koordinator.api.meta import controller_of
from koordinator.api.pod import ResourceRequirements
from koordinator.api.qos import classify, qos_class_of_name
from koordinator.api.quantity import Quantity
from koordinator.api.recommendation import (
    APPLIED,
    BY_RESIZE,
    IN_PLACE_OR_RECREATE,
    AmountChange,
    AppliedRecommendation,
    ContainerChange,
)
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.base.durations import format_duration
from koordinator.manager.recommender.observed_pods import ObservedPod
from koordinator.manager.recommender.options import ResizeOptions
from koordinator.manager.recommender.policy import Rules
from koordinator.manager.recommender.samples import Reading, Readings
from koordinator.model.container_sizes import (
    WHOLE_CORES,
    Bounds,
    PodShape,
    SizedContainer,
    Sizing,
    Step,
    amount_of,
    decide_sizes,
    describe,
)
from koordinator.model.recommendations import Recommended

_LONGEST_RETRY: Final = timedelta(hours=24)
_AT_LIMIT: Final = 0.95
"""The part of a lowered limit from which on its use is too much."""
_RESIZABLE: Final = frozenset({CPU, MEMORY})
_PENDING: Final = "PodResizePending"
_IN_PROGRESS: Final = "PodResizeInProgress"
_CLOCK_SKEW: Final = timedelta(minutes=1)
_INFEASIBLE: Final = "Infeasible"


@dataclass(frozen=True, slots=True)
class Resize:
    """Resize the containers of a pod. ``restarted`` are those that are restarted for it, by their resizePolicy."""

    pod: ObservedPod
    changes: Mapping[str, ContainerChange]
    restarted: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Undo:
    """Give a pod back what it had before its last resize."""

    pod: ObservedPod
    record: AppliedRecommendation
    reason: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a pod, in whose place its controller creates one that admission gives what is recommended."""

    pod: ObservedPod
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    action: Resize | Undo | Evict | None = None
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Pod -> why it is not resized though it differs from what is recommended; "" stands for all pods."""


def decide(
    recommended: Recommended,
    rules: Rules,
    pods: Sequence[ObservedPod],
    readings: Readings,
    held: Mapping[str, str],
    bounds: Mapping[str, Bounds],
    options: ResizeOptions,
    now: datetime,
    *,
    may_evict: bool = True,
) -> Decision:
    """What becomes of the pods of one Recommendation. ``held``: UID of a pod -> why it may not be resized now.
    ``bounds``: what the namespace allows a container, by resource name. ``may_evict``: whether admission gives new
    pods what is recommended, and the pod that was evicted last has been replaced."""
    records = {pod.metadata.uid: record_of(pod, now) for pod in pods}
    for pod in pods:
        record = records[pod.metadata.uid]
        if record is None or pod.metadata.uid in held:
            continue
        if reason := _worse(pod, record, readings, options, now):
            return Decision(Undo(pod, record, reason))
    if not rules.resizes:
        return Decision()
    if unusable := recommended.unusable(now, low_confidence_is_used=rules.low_confidence_is_used):
        return Decision(waiting={"": unusable})
    for pod in pods:
        record = records[pod.metadata.uid]
        if record is not None and (reason := _keeps_back(pod, record, options, now)):
            return Decision(waiting={"": reason})
    step = Step(options.raised_fraction, options.lowered_fraction)
    sizing = Sizing(rules.requests_only, options.threshold, step, bounds)
    evicts = rules.update_mode == IN_PLACE_OR_RECREATE and may_evict and _are_settled(pods, options, now)
    return _next(recommended, sizing, pods, records, readings, held, options, now, evicts=evicts)


def record_of(pod: ObservedPod, now: datetime) -> AppliedRecommendation | None:
    """Of the pod's last resize; None where it has had none, or where the annotation is not ours: a time in the future
    would keep its workload back until then."""
    text = pod.metadata.annotations.get(APPLIED)
    if text is None:
        return None
    try:
        found = decode(text, AppliedRecommendation)
    except DecodeError:
        return None
    return found if found.by == BY_RESIZE and found.at is not None and found.at <= now + _CLOCK_SKEW else None


def restored(pod: ObservedPod, record: AppliedRecommendation) -> Mapping[str, ContainerChange]:
    """The changes that undo the resize, as far as nobody has changed the pod since. What was added cannot be removed
    from a pod that runs, and nothing is added: whoever may write the pod may have written the record."""
    found = {}
    for container in pod.containers:
        change = record.containers.get(container.name)
        if change is None:
            continue
        requests, limits = (
            {
                name: AmountChange(before=each.after, after=each.before)
                for name, each in changed.items()
                if each.before is not None and each.after is not None and current.get(name) == each.after
            }
            for changed, current in (
                (change.requests, container.resources.requests),
                (change.limits, container.resources.limits),
            )
        )
        if requests or limits:
            found[container.name] = ContainerChange(requests=requests, limits=limits)
    return found


def _since(record: AppliedRecommendation, now: datetime) -> timedelta:
    """In whole seconds."""
    return timedelta(seconds=(now - (record.at or now)) // timedelta(seconds=1))


def _worse(
    pod: ObservedPod, record: AppliedRecommendation, readings: Readings, options: ResizeOptions, now: datetime
) -> str:
    """Why the last resize of the pod has to be undone; empty if it need not be."""
    since = _since(record, now)
    is_leaving = pod.metadata.deletion_timestamp is not None
    if is_leaving or record.undone or not record.containers or since >= options.hold:
        return ""
    pending = pod.condition(_PENDING)
    if pending is not None and pending.reason == _INFEASIBLE:
        return f"the node can never give it that: {pending.message}"
    if pending is not None and since >= options.watch:
        return f"the node has had no room for it in {format_duration(options.watch)}: {pending.message}"
    if (in_progress := pod.condition(_IN_PROGRESS)) is not None and since >= options.watch:
        why = in_progress.message or "no reason is given"
        return f"the node has not done it in {format_duration(options.watch)}: {why}"
    lowered = [name for name, change in record.containers.items() if _is_lowered(change)]
    for name in lowered:
        if pod.restarts.get(name, 0) > record.restarts.get(name, 0):
            return f"the container {name} {_end_of(pod, name)} after its resources were lowered"
    reading = readings.get((pod.metadata.namespace, pod.metadata.name))
    if reading is not None and record.at is not None and reading.at > record.at:
        for name in lowered:
            if reason := _at_limit(pod, name, record.containers[name], reading):
                return reason
    if since >= options.watch and pod.condition("Ready") is None:
        return f"the pod is not ready {format_duration(options.watch)} after it was resized"
    return ""


def _is_lowered(change: ContainerChange) -> bool:
    return any(
        each.before is not None and each.after is not None and each.after < each.before
        for amounts in (change.requests, change.limits)
        for each in amounts.values()
    )


def _end_of(pod: ObservedPod, container: str) -> str:
    """What has become of a container that was restarted."""
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        for state in (status.state, status.last_state):
            if status.name == container and state.terminated is not None and state.terminated.reason:
                return f"has ended ({state.terminated.reason})"
    return "was restarted"


def _at_limit(pod: ObservedPod, name: str, change: ContainerChange, reading: Reading) -> str:
    used = {CPU: reading.cpu(pod.containers), MEMORY: reading.memory(pod.containers)}
    for resource, each in change.limits.items():
        if resource not in used or each.before is None or each.after is None or not each.after < each.before:
            continue
        limit = amount_of(resource, each.after) / (1000 if resource == CPU else 1)
        if used[resource].get(name, 0.0) >= _AT_LIMIT * limit:
            return f"the container {name} uses all of the {resource} that its limit was lowered to, {each.after}"
    return ""


def _are_used_up(resize: Resize, reading: Reading) -> bool:
    """Whether the resize would be undone at once, for what the pod uses now."""
    return any(_at_limit(resize.pod, name, change, reading) for name, change in resize.changes.items())


def _keeps_back(pod: ObservedPod, record: AppliedRecommendation, options: ResizeOptions, now: datetime) -> str:
    """Why the last resize of this pod keeps all pods of its workload from being resized."""
    since, name = _since(record, now), pod.metadata.name
    if record.undone:
        pause = min(options.retry * 2 ** min(max(record.undos - 1, 0), 10), _LONGEST_RETRY)
        left = pause - since
        return (
            f"the resize of pod {name} was undone: {record.undone}; next attempt in {format_duration(left)}"
            if left.days >= 0
            else ""
        )
    if since < options.watch:
        return f"pod {name} was resized {format_duration(since)} ago and is watched"
    return ""


def _next(
    recommended: Recommended,
    sizing: Sizing,
    pods: Sequence[ObservedPod],
    records: Mapping[str, AppliedRecommendation | None],
    readings: Readings,
    held: Mapping[str, str],
    options: ResizeOptions,
    now: datetime,
    *,
    evicts: bool,
) -> Decision:
    """The first pod that may be changed, by name."""
    waiting = dict[str, str]()
    for pod in sorted(pods, key=lambda each: each.metadata.name):
        metadata = pod.metadata
        resize = resize_of(pod, recommended, sizing)
        if resize is None:
            continue
        reason = held.get(metadata.uid, "") or _too_early(pod, records[metadata.uid], options, now)
        reading = readings.get((metadata.namespace, metadata.name))
        if not reason and reading is not None and _are_used_up(resize, reading):
            reason = f"it uses more than that now: {describe(resize.changes)}"
        if not reason:
            obstacle = obstacle_of(resize)
            if not obstacle:
                return Decision(resize, waiting)
            reason = f"it cannot be resized in place: {obstacle}"
            if evicts and _may_be_evicted(pod, options, now):
                return Decision(Evict(pod, reason), waiting)
        waiting[metadata.name] = reason
    return Decision(waiting=waiting)


def _sized(pod: ObservedPod) -> Sequence[SizedContainer]:
    return [SizedContainer(each.name, each.resources.requests, each.resources.limits) for each in pod.containers]


def _shape(pod: ObservedPod) -> PodShape:
    return PodShape(qos_class_of_name(pod.metadata.labels.get(QOS_CLASS, "")))


def _too_early(pod: ObservedPod, record: AppliedRecommendation | None, options: ResizeOptions, now: datetime) -> str:
    begun = record.at if record is not None else pod.metadata.creation_timestamp
    if begun is not None and now - begun < options.hold:
        return f"it was {'resized' if record is not None else 'created'} less than {format_duration(options.hold)} ago"
    if pod.metadata.deletion_timestamp is not None or pod.condition("Ready") is None:
        return "it is not ready"
    return ""


def resize_of(pod: ObservedPod, recommended: Recommended, sizing: Sizing) -> Resize | None:
    """What would make the pod request what is recommended; None if it does."""
    changes = decide_sizes(_sized(pod), recommended.containers, _shape(pod), sizing)
    return Resize(pod, changes, tuple(_restarted(pod, changes))) if changes else None


def obstacle_of(resize: Resize) -> str:
    """Why the API server or the node would not resize the pod; empty if nothing is known to speak against it."""
    pod, changes = resize.pod, resize.changes
    resources = {name for change in changes.values() for part in (change.requests, change.limits) for name in part}
    if extended := sorted(resources - _RESIZABLE):
        return f"only cpu and memory can be, and it requests {' and '.join(extended)}"
    qos = _shape(pod).qos
    if qos in WHOLE_CORES and CPU in resources:
        return f"the CPUs of {qos} pods are chosen when they are placed"
    if CONFIG_MIRROR in pod.metadata.annotations:
        return "it is a static pod"
    if _has_own_resources(pod):
        return "it has requests or limits of its own (spec.resources)"
    for kind in (_PENDING, _IN_PROGRESS):
        if (condition := pod.condition(kind)) is not None:
            return f"an earlier resize is not done ({condition.reason or kind})"
    before, after = classify(_parts(pod, {})), classify(_parts(pod, changes))
    return f"its class of quality of service would change from {before} to {after}" if before != after else ""


def _parts(pod: ObservedPod, changes: Mapping[str, ContainerChange]) -> Iterator[ResourceRequirements]:
    """The resources of all containers with the changes."""
    for each in (*pod.spec.containers, *pod.spec.init_containers):
        change = changes.get(each.name, ContainerChange())
        yield ResourceRequirements(
            requests=each.resources.requests | amounts_after(change.requests),
            limits=each.resources.limits | amounts_after(change.limits),
        )


def amounts_after(changed: Mapping[str, AmountChange]) -> dict[str, Quantity]:
    return {name: each.after for name, each in changed.items() if each.after is not None}


def _restarted(pod: ObservedPod, changes: Mapping[str, ContainerChange]) -> Iterator[str]:
    for each in pod.containers:
        change = changes.get(each.name)
        if change is not None and each.restarts_for({*change.requests, *change.limits}):
            yield each.name


def _are_settled(pods: Sequence[ObservedPod], options: ResizeOptions, now: datetime) -> bool:
    """Whether all pods of a workload are ready, none is so new that it could still fail, and none is on its way out:
    a pod that terminates is ready for as long as its program takes to end."""
    return all(
        pod.metadata.deletion_timestamp is None
        and pod.condition("Ready") is not None
        and now - (pod.metadata.creation_timestamp or now) >= options.watch
        for pod in pods
    )


def _may_be_evicted(pod: ObservedPod, options: ResizeOptions, now: datetime) -> bool:
    """A young pod is not, nor one whose requests admission leaves alone: the next pod would be no better. The work of
    a pod of a Job would be lost."""
    created, controller = pod.metadata.creation_timestamp, controller_of(pod.metadata)
    is_old = created is not None and now - created >= options.evicted_after
    is_replaced = controller is not None and controller.kind != "Job"
    return is_old and is_replaced and not _has_own_resources(pod) and CONFIG_MIRROR not in pod.metadata.annotations


def _has_own_resources(pod: ObservedPod) -> bool:
    whole = pod.spec.resources
    return whole is not None and bool(whole.requests or whole.limits)
