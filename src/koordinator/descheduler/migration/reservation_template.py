"""The Reservation that is made for a job: room elsewhere for a pod that is to take the place of the one evicted."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from koordinator.api import labels
from koordinator.api.codec import to_document
from koordinator.api.document import Document, copied
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.base.durations import format_duration
from koordinator.descheduler.migration.job_facts import CREATED_BY, is_unschedulable

_CLAIMS: Final = ("persistentVolumeClaim", "ephemeral")


def reservation_name(job: PodMigrationJob) -> str:
    """The name that the job's Reservation has or will have."""
    options = job.spec.reservation_options
    if options is not None and options.reservation_ref is not None and options.reservation_ref.name:
        return options.reservation_ref.name
    template = options.template if options is not None else None
    named: str = (template or {}).get("metadata", {}).get("name", "")
    return named or job.metadata.uid


def reservation_for(
    job: PodMigrationJob, pod: Pod, document: Document, now: datetime, *, without_claims: bool = False
) -> Document:
    """The Reservation to create: the job's template, completed by the pod.

    ``document`` is all of ``pod``, also what we do not know of it. ``without_claims`` leaves out volumes that would
    have to be claimed (the feature gate DisablePVCReservation)."""
    options = job.spec.reservation_options
    made: Document = copied(options.template) if options is not None and options.template else {}
    metadata, spec = made.setdefault("metadata", {}), made.setdefault("spec", {})
    metadata["name"] = reservation_name(job)
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        labels.CREATED_BY: CREATED_BY,
        labels.RESERVATION_ORDER: str(int(now.timestamp() * 1000)),
    }
    spec["template"] = spec.get("template") or _template_of(document)
    spec["owners"] = spec.get("owners") or _owners(pod)
    spec["allocateOnce"] = True
    if spec.get("ttl") is None and spec.get("expires") is None and job.spec.ttl:
        spec["ttl"] = format_duration(job.spec.ttl)
    _keep_off(pod.spec.node_name, spec["template"].setdefault("spec", {}), without_claims=without_claims)
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
    controllers = (reference for reference in metadata.owner_references if reference.controller)
    return [{"controller": {**to_document(each), "namespace": metadata.namespace}} for each in controllers][:1]


def _keep_off(node: str, spec: Document, *, without_claims: bool) -> None:
    """The pod template goes to any node but the pod's own."""
    spec.pop("nodeName", None)
    if without_claims:
        spec["volumes"] = [each for each in spec.get("volumes") or [] if not any(each.get(name) for name in _CLAIMS)]
    if not node:
        return
    elsewhere = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
    required = affinity_member(
        affinity_member(affinity_member(spec, "affinity"), "nodeAffinity"),
        "requiredDuringSchedulingIgnoredDuringExecution",
    )
    terms = required.get("nodeSelectorTerms") or [{}]
    for term in terms:
        term["matchFields"] = [*(term.get("matchFields") or []), elsewhere]
    required["nodeSelectorTerms"] = terms


def affinity_member(parent: Document, name: str) -> dict[str, Any]:
    """The object under ``name``, made where there is none or null."""
    if parent.get(name) is None:
        parent[name] = {}
    member: dict[str, Any] = parent[name]
    return member
