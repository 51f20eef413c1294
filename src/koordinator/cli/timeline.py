"""What each program did with one pod, in the order of time: admission, the scheduler, the node's agents, the
descheduler. Decided on documents as the API has them; no request is sent here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from koordinator.api import labels as label_keys
from koordinator.api import modification as modifications
from koordinator.api.annotations import RESERVATION_ALLOCATED
from koordinator.api.audit_answer import KeptRecord
from koordinator.api.codec import DecodeError, convert, decode, decode_any
from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.explanations import AttemptRecord, EventRecord, Moment
from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.modification import Modification
from koordinator.api.nodemetric import INTERFERENCE
from koordinator.api.recommendation import APPLIED, BY_ADMISSION, BY_RESIZE, AppliedRecommendation
from koordinator.api.timestamps import format_micro_time
from koordinator.cli.explain_state import scheduler_of
from koordinator.model.container_sizes import describe
from koordinator.model.label_selector import SelectorError, compile_selector

Document = Mapping[str, Any]
_MANAGER: Final = "koord-manager"
_DESCHEDULER: Final = "koord-descheduler"
_KOORDLET: Final = "koordlet"
_KUBELET: Final = "kubelet"
_API: Final = "API server"
_OF_ATTEMPTS: Final = frozenset({"Scheduled", "FailedScheduling"})
"""The events that say of an attempt what its record says better."""
_OF_RESIZES: Final = frozenset({"RecommendationApplied", "RecommendationUndone"})
"""The events of resizes for a Recommendation."""
_RANKS: Final = {_API: 0, _MANAGER: 1}
_OTHERS: Final = 3
_SCHEDULERS: Final = 2
"""Many times are whole seconds: within one, programs act in this order."""


@dataclass(frozen=True, slots=True)
class Traces:
    """What else the API has about a pod; empty where there is none, or where it may not be read."""

    profiles: Sequence[Document] = ()
    """ClusterColocationProfiles."""
    namespace_labels: Mapping[str, str] | None = None
    """Of the pod's namespace; None where they may not be read."""
    jobs: Sequence[Document] = ()
    """PodMigrationJobs."""
    metric: Document | None = None
    """The NodeMetric of its node."""
    records: Sequence[KeptRecord] = ()
    """What the audit of koord-manager has kept."""


def timeline_of(
    pod: Document, events: Sequence[Document], attempts: Sequence[AttemptRecord], traces: Traces
) -> list[Moment]:
    """All of it, the oldest first. ``attempts`` are those that the scheduler remembers."""
    found = [
        *_creation(pod),
        *_admission(pod, traces),
        *_recommendation(pod, {event.get("reason") for event in events}),
        *_scheduling(pod, attempts, {event.get("reason") for event in events}),
        *_told(_unkept(events, traces.records), {scheduler_of(pod)} if attempts else ()),
        *_on_node(pod),
        *_measured(pod, traces.metric),
        *_migrations(pod, traces.jobs),
        *_recorded(pod, traces),
    ]
    scheduler = scheduler_of(pod)
    return sorted((each for each in found if _parsed(each.time) is not None), key=lambda each: _order(each, scheduler))


_EVENTS_KEPT: Final = 20


def event_records(events: Sequence[Document]) -> list[EventRecord] | None:
    """The last of them; None without any."""
    return [_event_record(each) for each in events[-_EVENTS_KEPT:]] or None


def _event_record(event: Document) -> EventRecord:
    """A core/v1 Event as it is shown."""
    series = event.get("series") or {}
    time = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    return EventRecord(
        time=f"{str(time)[:19]}Z" if time else "",
        from_=event.get("reportingComponent") or (event.get("source") or {}).get("component") or "",
        reason=event.get("reason") or "",
        message=event.get("message") or "",
    )


def _order(moment: Moment, scheduler: str) -> tuple[datetime, int, datetime]:
    at = _parsed(moment.time)
    assert at is not None
    rank = _SCHEDULERS if moment.program == scheduler else _RANKS.get(moment.program, _OTHERS)
    return at.replace(microsecond=0), rank, at


def _parsed(time: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(time)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _creation(pod: Document) -> Iterator[Moment]:
    metadata = pod["metadata"]
    owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
    why = f"by the controller of {owner.get('kind')} {owner.get('name')}" if owner is not None else ""
    yield Moment(time=metadata.get("creationTimestamp") or "", program=_API, what="is created", why=why)
    if deleted := metadata.get("deletionTimestamp"):
        seconds = metadata.get("deletionGracePeriodSeconds") or 0
        yield Moment(time=deleted, program=_API, what="has to be gone", why=f"its deletion gave it {seconds} s")


def _admission(pod: Document, traces: Traces) -> Iterator[Moment]:
    """What the webhooks of koord-manager changed, as far as the pod shows it: of the profiles that select it and are
    older than it, those settings that it has."""
    created = pod["metadata"].get("creationTimestamp") or ""
    for document in traces.profiles:
        try:
            profile = convert(document, ClusterColocationProfile)
            selects = _selects(profile, pod, traces.namespace_labels)
        except (DecodeError, SelectorError):
            # The webhook skips such a profile, too.
            continue
        older = (document["metadata"].get("creationTimestamp") or "") <= created
        if older and selects and (settings := _settings_of(profile, pod)):
            name = profile.metadata.name
            what = f"admits it, with {', '.join(settings)}"
            yield Moment(time=created, program=_MANAGER, what=what, why=f"ClusterColocationProfile {name} selects it")


def _recommendation(pod: Document, told: Set[Any]) -> Iterator[Moment]:
    """What the pod webhook made of a Recommendation, or why it made nothing of it; and the last resize, unless an event
    tells it: one by hand has none."""
    try:
        applied = decode((pod["metadata"].get("annotations") or {}).get(APPLIED, "{}"), AppliedRecommendation)
    except DecodeError:
        return
    if applied.by == BY_RESIZE and applied.at is not None and not told & _OF_RESIZES:
        what, why = "resizes its containers in place", f"Recommendation {applied.recommendation}"
        time = format_micro_time(applied.at)
        yield Moment(time=time, program=_MANAGER, what=what, why=f"{why}: {describe(applied.containers)}")
    if applied.by != BY_ADMISSION:
        return
    what = "admits it with the requests that it came with"
    if applied.containers:
        what = f"admits it, with {describe(applied.containers)}"
    why = applied.skipped or f"Recommendation {applied.recommendation} is about it"
    yield Moment(time=pod["metadata"].get("creationTimestamp") or "", program=_MANAGER, what=what, why=why)


def _selects(profile: ClusterColocationProfile, pod: Document, namespace_labels: Mapping[str, str] | None) -> bool:
    chosen = (
        (profile.spec.namespace_selector, namespace_labels),
        (profile.spec.selector, pod["metadata"].get("labels") or {}),
    )
    for selector, labels in chosen:
        compiled = compile_selector(selector) if selector is not None else None
        if compiled is not None and not compiled.empty and (labels is None or not compiled.matches(labels)):
            return False
    return True


def _settings_of(profile: ClusterColocationProfile, pod: Document) -> list[str]:
    metadata, spec, wanted = pod["metadata"], pod.get("spec") or {}, profile.spec
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    expected = {**wanted.labels, **({label_keys.QOS_CLASS: wanted.qos_class} if wanted.qos_class else {})}
    fields = {"priorityClassName": wanted.priority_class_name, "schedulerName": wanted.scheduler_name}
    found = [f"the label {key}={value}" for key, value in expected.items() if labels.get(key) == value]
    found += [f"the annotation {key}" for key, value in wanted.annotations.items() if annotations.get(key) == value]
    return found + [f"{name} {value}" for name, value in fields.items() if value and spec.get(name) == value]


def _scheduling(pod: Document, attempts: Sequence[AttemptRecord], told: Collection[Any]) -> Iterator[Moment]:
    """The attempts that are remembered; of a pod that was placed before, the time that its condition has, unless the
    event ``Scheduled`` tells it."""
    scheduler, node = scheduler_of(pod), (pod.get("spec") or {}).get("nodeName") or ""
    for attempt in attempts:
        yield _moment_of(attempt, scheduler, _reservation_of(pod))
    if node and "Scheduled" not in told and not any(attempt.result == "placed" for attempt in attempts):
        for condition in _conditions(pod, "PodScheduled"):
            time = condition.get("lastTransitionTime") or ""
            yield Moment(time=time, program=scheduler, what=f"puts it on {node}", why="")


def _moment_of(attempt: AttemptRecord, scheduler: str, reservation: str) -> Moment:
    if attempt.result == "placed":
        best = next((each.score for each in attempt.top_nodes or () if each.node == attempt.node), None)
        score = f", score {best}" if best is not None else ""
        within = f", in the Reservation {reservation}" if reservation else ""
        why = f"{attempt.feasible_nodes} of {attempt.evaluated_nodes} nodes were good enough{score}"
        return Moment(time=attempt.time, program=scheduler, what=f"puts it on {attempt.node}{within}", why=why)
    what = "finds no node" if attempt.result == "unschedulable" else "fails"
    if attempt.nominated_node:
        what = f"evicts {', '.join(attempt.evicts or ())} on {attempt.nominated_node} for it"
    return Moment(
        time=attempt.time, program=scheduler, what=what, why=(attempt.message or "").partition(" preemption: ")[0]
    )


def _reservation_of(pod: Document) -> str:
    text = (pod["metadata"].get("annotations") or {}).get(RESERVATION_ALLOCATED, "")
    try:
        found = decode_any(text)
    except DecodeError:
        return ""
    return str(found.get("name", "")) if isinstance(found, dict) else ""


def _told(events: Sequence[Document], silent: Collection[str]) -> Iterator[Moment]:
    """The events, but for what the attempts of the schedulers ``silent`` say already."""
    for event in events:
        record = _event_record(event)
        if record.from_ in silent and record.reason in _OF_ATTEMPTS:
            continue
        count = (event.get("series") or {}).get("count") or event.get("count") or 1
        what = f"{record.reason} ({count} times)" if count > 1 else record.reason
        yield Moment(time=record.time, program=record.from_, what=what, why=record.message)


def _on_node(pod: Document) -> Iterator[Moment]:
    """What the kubelet reports of its containers, and when the pod was ready."""
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        name = container.get("name", "")
        states = (container.get("lastState") or {}), (container.get("state") or {})
        for state in states:
            if ended := state.get("terminated"):
                why = ", ".join(text for text in (ended.get("reason"), f"exit code {ended.get('exitCode')}") if text)
                what = f"the container {name} has ended"
                yield Moment(time=ended.get("finishedAt") or "", program=_KUBELET, what=what, why=why)
        if running := states[1].get("running"):
            restarts = container.get("restartCount") or 0
            why = f"restarted {restarts} times" if restarts else ""
            what = f"the container {name} runs"
            yield Moment(time=running.get("startedAt") or "", program=_KUBELET, what=what, why=why)
    for condition in _conditions(pod, "Ready"):
        yield Moment(time=condition.get("lastTransitionTime") or "", program=_KUBELET, what="it is ready", why="")


def _conditions(pod: Document, kind: str) -> Iterator[Document]:
    """The condition of that type, if it is true."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind and condition.get("status") == "True":
            yield condition


def _measured(pod: Document, metric: Document | None) -> Iterator[Moment]:
    """What koordlet has written beside the pod's usage: that it is suppressed, and that it suffers from others."""
    metadata, status = pod["metadata"], (metric or {}).get("status") or {}
    for each in status.get("podsMetric") or ():
        if (each.get("namespace"), each.get("name")) != (metadata.get("namespace"), metadata["name"]):
            continue
        said = (each.get("extensions") or {}).get(EXTENSIONS_MEMBER) or {}
        if held := said.get("suppression"):
            what = f"holds it down: {held.get('cpus')} CPUs for all best-effort pods of the node"
            yield Moment(time=held.get("since") or "", program=_KOORDLET, what=what, why=held.get("why") or "")
        for finding in said.get(INTERFERENCE) or ():
            suspects = ", ".join(suspect.get("pod", "") for suspect in finding.get("suspects") or ())
            figures = f"{finding.get('indicator')} {finding.get('value')}, normally {finding.get('normal')}"
            why = f"{figures}; perhaps because of {suspects}" if suspects else figures
            since = finding.get("since") or ""
            yield Moment(time=since, program=_KOORDLET, what="finds that it suffers from others", why=why)


def _migrations(pod: Document, jobs: Sequence[Document]) -> Iterator[Moment]:
    for job in jobs:
        status, name = job.get("status") or {}, job["metadata"]["name"]
        if _is_same(pod, (job.get("spec") or {}).get("podRef")):
            mode = (job.get("spec") or {}).get("mode") or "the mode that is configured"
            created = job["metadata"].get("creationTimestamp") or ""
            yield Moment(time=created, program=_DESCHEDULER, what=f"is to move it: PodMigrationJob {name}", why=mode)
            yield from _steps(job)
        elif _is_same(pod, status.get("podRef")):
            old = job["spec"]["podRef"]
            what = f"has moved {old.get('namespace')}/{old.get('name')}, in whose place it is"
            time = max((step.time for step in _steps(job)), default="")
            yield Moment(time=time, program=_DESCHEDULER, what=what, why=f"PodMigrationJob {name}")


def _unkept(events: Sequence[Document], records: Sequence[KeptRecord]) -> Sequence[Document]:
    """The events but for those that carried a record which was kept: it says more."""
    kept = {each.event for each in records}
    named = ((event, event.get("metadata") or {}) for event in events)
    return [event for event, metadata in named if f"{metadata.get('namespace')}/{metadata.get('name')}" not in kept]


def _recorded(pod: Document, traces: Traces) -> Iterator[Moment]:
    """What was kept, but for that of jobs which are there still, and of pods that had its name before."""
    key = f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"
    created = _parsed(pod["metadata"].get("creationTimestamp") or "")
    told = {f"PodMigrationJob/{job['metadata']['name']}" for job in traces.jobs}
    for kept in traces.records:
        record = kept.record
        is_earlier = created is not None and record.time is not None and record.time < created
        if record.actor not in told and not is_earlier:
            yield moment_of_record(record, key)


def moment_of_record(record: Modification, pod: str) -> Moment:
    """What a record says of ``pod``, which is its object or one of the pods that it names."""
    about, where = record.object, f" on {record.node}" if record.node else ""
    is_object = about.kind == "Pod" and f"{about.namespace}/{about.name}" == pod
    times = f", {record.count} times" if record.count > 1 else ""
    match record.action:
        case modifications.EVICTED:
            what = f"evicts it{where}"
        case modifications.PREEMPTED:
            what = f"evicts it{where} for {record.actor}"
        case modifications.MOVED if record.outcome == modifications.FAILED:
            what = f"has not moved it: {record.actor}"
        case modifications.MOVED if is_object and record.pods:
            what = f"has moved it: {record.target} is in its place{where}"
        case modifications.MOVED if is_object:
            what = f"has moved it to {record.target}" if record.target else "has moved it"
        case modifications.MOVED:
            what = f"has moved {about.namespace}/{about.name}, in whose place it is"
        case modifications.SUPPRESSED:
            what = f"holds best-effort pods down{where}{times}"
        case modifications.RESIZED if record.program == _MANAGER:
            what = "resizes its containers in place"
        case modifications.RESIZED:
            what = f"changes the CPU quota of its containers{times}"
        case modifications.REMEDIED:
            what = f"holds it back{where}, or no longer"
        case action:
            what = f"{action} {about.kind} {about.name}{where}{times}"
    time = format_micro_time(record.time) if record.time is not None else ""
    return Moment(time=time, program=record.program, what=what, why=record.cause.text or record.cause.code)


def _steps(job: Document) -> Iterator[Moment]:
    for condition in (job.get("status") or {}).get("conditions") or ():
        done = "" if condition.get("status") == "True" else " is not done"
        why = condition.get("message") or condition.get("reason") or ""
        time = condition.get("lastTransitionTime") or ""
        yield Moment(time=time, program=_DESCHEDULER, what=f"{condition.get('type')}{done}", why=why)


def _is_same(pod: Document, reference: Document | None) -> bool:
    metadata = pod["metadata"]
    if not reference:
        return False
    if uid := reference.get("uid"):
        return bool(uid == metadata.get("uid"))
    return (reference.get("namespace"), reference.get("name")) == (metadata.get("namespace"), metadata["name"])
