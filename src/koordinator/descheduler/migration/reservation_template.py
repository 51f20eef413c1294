"""The Reservation that is made for a job: capacity elsewhere for the pod that replaces the evicted one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from koordinator.api import labels
from koordinator.api.codec import to_document
from koordinator.api.document import Document, copied
from koordinator.api.kinds import POD_MIGRATION_JOBS, RESERVATIONS
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.base.durations import format_duration
from koordinator.descheduler.migration.job_facts import CREATED_BY, is_unschedulable

_CLAIMS: Final = ("persistentVolumeClaim", "ephemeral")
_AFFINITY: Final = "spec.template.spec.affinity"
_REQUIRED: Final = f"{_AFFINITY}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_SHAPES: Final[Mapping[str, tuple[type, str]]] = {
    "metadata": (dict, "an object"),
    "metadata.name": (str, "a text"),
    "metadata.labels": (dict, "an object"),
    "spec": (dict, "an object"),
    "spec.template": (dict, "an object"),
    "spec.template.spec": (dict, "an object"),
    "spec.template.spec.volumes": (list, "a list"),
    _AFFINITY: (dict, "an object"),
    f"{_AFFINITY}.nodeAffinity": (dict, "an object"),
    _REQUIRED: (dict, "an object"),
    f"{_REQUIRED}.nodeSelectorTerms": (list, "a list"),
}
"""What is read of a template, parents first; the API server has no schema for it."""
_SHOWN: Final = 100
"""Characters of a value that is refused."""


def reservation_name(job: PodMigrationJob) -> str:
    """The name that the job's Reservation has or will have."""
    options = job.spec.reservation_options
    if options is not None and options.reservation_ref is not None and options.reservation_ref.name:
        return options.reservation_ref.name
    template = options.template if options is not None else None
    metadata = (template or {}).get("metadata")
    named = metadata.get("name") if isinstance(metadata, dict) else None
    return named if named and isinstance(named, str) else job.metadata.uid


def template_problem(job: PodMigrationJob) -> str:
    """Why no Reservation can be made of the job's template; "" if one can, or if it has none."""
    options = job.spec.reservation_options
    template = (options.template if options is not None else None) or {}
    for path, (expected, allowed) in _SHAPES.items():
        value = _at(template, path)
        if value is not None and not isinstance(value, expected):
            return _refused(path, value, allowed)
    for path in ("spec.template.spec.volumes", f"{_REQUIRED}.nodeSelectorTerms"):
        for index, each in enumerate(_at(template, path) or []):
            if not isinstance(each, dict):
                return _refused(f"{path}[{index}]", each, "an object")
            fields = each.get("matchFields")
            if fields is not None and not isinstance(fields, list):
                return _refused(f"{path}[{index}].matchFields", fields, "a list")
    return ""


def _refused(path: str, value: Any, allowed: str) -> str:
    return f"spec.reservationOptions.template.{path} is {repr(value)[:_SHOWN]}; expected is {allowed}"


def _at(template: Document, path: str) -> Any:
    """What is there; None if it or a parent is absent or null."""
    value: Any = template
    for name in path.split("."):
        if value is None:
            return None
        value = value.get(name)
    return value


def reservation_for(
    job: PodMigrationJob, pod: Pod, document: Document, now: datetime, *, without_claims: bool = False
) -> Document:
    """The Reservation to create: the job's template, in which there is no ``template_problem``, completed by the pod.

    ``document`` is all of ``pod``, also what we do not know of it. ``without_claims`` leaves out volumes that would
    have to be claimed (the feature gate DisablePVCReservation)."""
    options = job.spec.reservation_options
    made: Document = copied(options.template) if options is not None and options.template else {}
    metadata, spec = affinity_member(made, "metadata"), affinity_member(made, "spec")
    metadata["name"] = reservation_name(job)
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        labels.CREATED_BY: CREATED_BY,
        labels.RESERVATION_ORDER: str(int(now.timestamp() * 1000)),
    }
    # When the job is deleted, also while no descheduler leads, the garbage collector deletes the Reservation.
    metadata["ownerReferences"] = [
        {
            "apiVersion": POD_MIGRATION_JOBS.api_version,
            "kind": POD_MIGRATION_JOBS.name,
            "name": job.metadata.name,
            "uid": job.metadata.uid,
        }
    ]
    spec["template"] = spec.get("template") or _template_of(document)
    spec["owners"] = spec.get("owners") or _owners(pod)
    spec["allocateOnce"] = True
    if spec.get("ttl") is None and spec.get("expires") is None and job.spec.ttl:
        spec["ttl"] = format_duration(job.spec.ttl)
    template = affinity_member(spec["template"], "spec")
    template.pop("nodeName", None)
    if without_claims:
        volumes = template.get("volumes") or []
        template["volumes"] = [each for each in volumes if not any(each.get(name) for name in _CLAIMS)]
    if pod.spec.node_name:
        keep_off(pod.spec.node_name, template)
    return {"apiVersion": RESERVATIONS.api_version, "kind": RESERVATIONS.name, "metadata": metadata, "spec": spec}


def _template_of(document: Document) -> Document:
    template: Document = {"metadata": copied(document["metadata"]), "spec": copied(document["spec"])}
    # Who wrote which field of the pod is several times as long as the rest and means nothing here.
    template["metadata"].pop("managedFields", None)
    return template


def _owners(pod: Pod) -> list[Document]:
    metadata = pod.metadata
    if is_unschedulable(pod):
        owner = {"kind": "Pod", "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
        return [{"object": owner}]
    controller = controller_of(metadata)
    if controller is None:
        return []
    return [{"controller": {**to_document(controller), "namespace": metadata.namespace}}]


def keep_off(node: str, spec: Document, *expressions: Document) -> None:
    """A pod of this spec goes to any node but that one, and only to nodes for which the expressions hold."""
    affinity = affinity_member(affinity_member(spec, "affinity"), "nodeAffinity")
    required = affinity_member(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    elsewhere = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
    required["nodeSelectorTerms"] = required.get("nodeSelectorTerms") or [{}]
    for term in required["nodeSelectorTerms"]:
        term["matchFields"] = [*(term.get("matchFields") or []), elsewhere]
        if expressions:
            term["matchExpressions"] = [*(term.get("matchExpressions") or []), *expressions]


def affinity_member(parent: Document, name: str) -> dict[str, Any]:
    """The object under ``name``, made where there is none or null."""
    if parent.get(name) is None:
        parent[name] = {}
    member: dict[str, Any] = parent[name]
    return member
