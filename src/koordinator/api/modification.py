"""The record of a modification: which program evicted, moved, suppressed or resized what, when, where and why.

A program hands a record over as an annotation of the Event that it writes about the object anyway, so that the record
needs no further permission, and waits in the API while no koord-manager keeps it. An Event with a record has the label
``AUDIT_ACTION``, by which it is watched. Whoever may create Events of a namespace can write records there; a record is
therefore only taken where it is about an object of its Event's own namespace (``decode_record``).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from koordinator.api.codec import DecodeError, decode, encode
from koordinator.api.meta import ObjectMeta, ObjectReference, WireStruct
from koordinator.api.timestamps import Time

AUDIT_ACTION: Final = "audit.koordinator.sh/action"
"""The label of an Event that carries a record; its value is the action."""
AUDIT_RECORD: Final = "audit.koordinator.sh/record"
"""The annotation with the record."""
LONGEST_RECORD: Final = 8 << 10
"""Characters; a longer one is not kept."""
MOST_PODS: Final = 30
"""Pods that a record names beside its object."""
_LONGEST_TEXT: Final = 1024
_LONGEST_CODE: Final = 128
_CLUSTER_NAMESPACE: Final = "default"
"""Where Events about objects without a namespace are."""
_AHEAD: Final = timedelta(minutes=10)
"""The clocks of nodes may be ahead of that of the API server by so much."""

EVICTED: Final = "evicted"
PREEMPTED: Final = "preempted"
MOVED: Final = "moved"
DRAINED: Final = "drained"
SUPPRESSED: Final = "suppressed"
RESIZED: Final = "resized"
REMEDIED: Final = "remedied"
ADJUSTED: Final = "adjusted"
ADMITTED: Final = "admitted"
ACTIONS: Final[Mapping[str, str]] = {
    EVICTED: "the pod was evicted",
    PREEMPTED: "the pod was evicted to make room for another one",
    MOVED: "a migration of the pod has ended",
    DRAINED: "all pods that concern the drain have left the node",
    SUPPRESSED: "the CPUs of best-effort pods of the node were limited",
    RESIZED: "the CPU quota of containers was changed",
    REMEDIED: "a best-effort pod that disturbs another pod was held back, or is no longer",
    ADJUSTED: "objects that were there, a policy or a threshold were changed",
    ADMITTED: "pods were changed when they were created",
}
"""All actions, each with its meaning."""
DONE: Final = "done"
FAILED: Final = "failed"
OUTCOMES: Final = (DONE, FAILED)


class Subject(WireStruct, omit_defaults=False):
    """The object that was modified."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Cause(WireStruct, omit_defaults=False):
    """Why: a word for programs, and a sentence."""

    code: str = ""
    text: str = ""


class Modification(WireStruct, omit_defaults=False):
    """One modification, or the summary of many alike: then ``since`` is the time of the first, ``time`` that of the
    last, and ``count`` their number. A program fills all but ``time``, ``program`` and ``object``, which the recorder
    sets."""

    version: int = 1
    time: Time | None = None
    program: str = ""
    """koord-scheduler, koord-manager, koordlet or koord-descheduler."""
    action: str = ""
    """One of ACTIONS."""
    outcome: str = DONE
    """One of OUTCOMES."""
    actor: str = ""
    """The part of the program or the object on whose behalf it acted, such as ``PodMigrationJob/move-web``."""
    object: Subject = Subject()
    node: str = ""
    """Where; empty if it is about no node."""
    target: str = ""
    """The node, or the pod that replaces this one, that was chosen; empty if none was."""
    cause: Cause = Cause()
    since: Time | None = None
    count: int = 1
    pods: list[str] = []
    """``namespace/name`` of pods that were affected too, at most MOST_PODS."""
    numbers: dict[str, float] = {}
    """Figures by name; the name ends in the unit."""


def event_metadata(record: Modification) -> tuple[dict[str, str], dict[str, str]]:
    """The labels and annotations of the Event that carries the record."""
    return {AUDIT_ACTION: record.action}, {AUDIT_RECORD: encode(record).decode()}


def complete(record: Modification, program: str, regarding: ObjectReference, note: str, now: Time) -> Modification:
    """The record of what ``program`` did now to ``regarding``; without a sentence of its own, ``note`` is its
    cause's. Of what makes it longer than LONGEST_RECORD, its pods go first, then the end of the sentence."""
    about = Subject(kind=regarding.kind, namespace=regarding.namespace, name=regarding.name, uid=regarding.uid)
    cause = Cause(record.cause.code[:_LONGEST_CODE], (record.cause.text or note)[:_LONGEST_TEXT])
    given = {"time": now, "program": program, "object": about, "cause": cause, "pods": record.pods[:MOST_PODS]}
    whole = msgspec.structs.replace(record, **given)
    while (excess := len(encode(whole).decode()) - LONGEST_RECORD) > 0 and (whole.pods or whole.cause.text):
        if whole.pods:
            whole = msgspec.structs.replace(whole, pods=whole.pods[:-1])
        else:
            shorter = msgspec.structs.replace(whole.cause, text=whole.cause.text[:-excess])
            whole = msgspec.structs.replace(whole, cause=shorter)
    return whole


def decode_record(event: ObjectMeta) -> Modification:
    """The record of an Event. Raises DecodeError with what is wrong with it."""
    text = event.annotations.get(AUDIT_RECORD, "")
    if len(text) > LONGEST_RECORD:
        raise DecodeError(f"the record has {len(text)} characters, at most {LONGEST_RECORD} are kept")
    record = decode(text, Modification)
    for field, value, allowed in (
        ("action", record.action, ACTIONS),
        ("outcome", record.outcome, OUTCOMES),
        ("object.namespace", record.object.namespace or _CLUSTER_NAMESPACE, (event.namespace,)),
    ):
        if value not in allowed:
            raise DecodeError(f"{field}: {value!r} is not {' or '.join(allowed)}")
    foreign = [pod for pod in record.pods if record.object.namespace and pod.partition("/")[0] != event.namespace]
    if foreign or len(record.pods) > MOST_PODS:
        raise DecodeError(f"pods: at most {MOST_PODS} of the namespace {event.namespace} are allowed")
    if record.time is None or not record.object.name:
        raise DecodeError("time and object.name are needed")
    if event.creation_timestamp is not None and record.time > event.creation_timestamp + _AHEAD:
        raise DecodeError("time: it is later than that of the Event")
    return record
