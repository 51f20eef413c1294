"""Pods: defaults, admission, and what each verb may change."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.timestamps import format_time
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy import containers as _containers  # noqa: F401  registers the defaults
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.pod_admission import add_default_tolerations, resolve_priority
from koordinator.cluster.strategy.pod_status import pod_table
from koordinator.cluster.strategy.pod_update import check_pod_update
from koordinator.cluster.strategy.pod_validation import check_pod_spec
from koordinator.cluster.strategy.qos import qos_class
from koordinator.cluster.strategy.table import lookup

_FIELD_LABELS: Final = (
    "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
    "status.phase", "status.podIP", "status.nominatedNodeName",
)  # fmt: skip
_GATED: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


class PodStrategy(ObjectStrategy):
    def __init__(self) -> None:
        labels = {label: _reader(label) for label in _FIELD_LABELS}
        super().__init__("v1", "Pod", table=pod_table(), generation=True, status=True, field_labels=labels)

    def admit(self, obj: Document, context: RequestContext) -> None:
        add_default_tolerations(obj["spec"])
        resolve_priority(obj, context)

    def initialize(self, obj: Document, context: RequestContext) -> None:
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            obj["status"]["conditions"] = [
                {**_GATED, "lastProbeTime": None, "lastTransitionTime": format_time(context.now)}
            ]

    def admit_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        add_default_tolerations(obj["spec"])
        # These two are worked out on creation; a client that sends the object without them does not take them away.
        for name in ("priority", "preemptionPolicy"):
            if obj["spec"].get(name) is None and name in old["spec"]:
                obj["spec"][name] = old["spec"][name]

    def keep_metadata_on_status_update(self, obj: Document, old: Document) -> None:
        """The kubelet and device plugins annotate pods by way of their status: only owners stay."""
        owners = old["metadata"].get("ownerReferences")
        obj["metadata"].pop("ownerReferences", None)
        if owners:
            obj["metadata"]["ownerReferences"] = owners
        if before := (old.get("status") or {}).get("qosClass"):
            obj["status"]["qosClass"] = before

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        if old is not None and obj["spec"] == old["spec"]:
            return []  # was checked when it was stored; most updates are of a pod's status or labels
        causes = check_pod_spec(obj["spec"], "spec", obj["metadata"].get("labels") or {})
        return causes if old is None else check_pod_update(obj["spec"], old["spec"], causes)


def _reader(label: str) -> Any:
    names = label.split(".")

    def read(obj: Document) -> str:
        value = lookup(obj, names)
        if names[-1] == "hostNetwork":
            return "true" if value else "false"
        return value or ""

    return read
