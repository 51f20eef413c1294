"""The ``kubectl get`` columns of the kinds that run pods, and of what scales them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from koordinator.api.document import Document
from koordinator.cluster.resource import Column
from koordinator.cluster.strategy.table import (
    AGE,
    NAME,
    NONE,
    age,
    computed,
    human_duration,
    integer,
    labels_text,
    lookup,
    selector_text,
    table,
    text,
)


def _containers(obj: Document) -> str:
    return ",".join(c.get("name") or "" for c in _pod_spec(obj).get("containers") or [])


def _images(obj: Document) -> str:
    return ",".join(c.get("image") or "" for c in _pod_spec(obj).get("containers") or [])


def _pod_spec(obj: Document) -> Document:
    spec = lookup(obj, ("spec", "template", "spec")) or lookup(obj, ("template", "spec"))
    return spec or lookup(obj, ("spec", "jobTemplate", "spec", "template", "spec")) or {}


def _selector(obj: Document) -> str:
    selector = lookup(obj, ("spec", "selector"))
    if selector is None:
        return NONE
    if not selector.keys() & {"matchLabels", "matchExpressions"}:
        return labels_text(selector)
    return selector_text(selector)


_TEMPLATE = (
    computed("Containers", _containers, wide=True),
    computed("Images", _images, wide=True),
    computed("Selector", _selector, wide=True),
)


def _ratio(ready: str, wanted: str) -> Callable[[Document], str]:
    def read(obj: Document) -> str:
        return f"{lookup(obj, ready.split('.')) or 0}/{lookup(obj, wanted.split('.')) or 0}"

    return read


def _counted(name: str, path: str) -> Any:
    return computed(name, lambda obj: lookup(obj, path.split(".")) or 0)


DEPLOYMENT = table(
    NAME,
    computed("Ready", _ratio("status.readyReplicas", "spec.replicas")),
    _counted("Up-to-date", "status.updatedReplicas"),
    _counted("Available", "status.availableReplicas"),
    AGE,
    *_TEMPLATE,
)
REPLICA_SET = table(
    NAME,
    integer("Desired", "spec.replicas"),
    integer("Current", "status.replicas"),
    integer("Ready", "status.readyReplicas"),
    AGE,
    *_TEMPLATE,
)
DAEMON_SET = table(
    NAME,
    integer("Desired", "status.desiredNumberScheduled"),
    integer("Current", "status.currentNumberScheduled"),
    integer("Ready", "status.numberReady"),
    integer("Up-to-date", "status.updatedNumberScheduled"),
    integer("Available", "status.numberAvailable"),
    computed("Node Selector", lambda obj: labels_text(_pod_spec(obj).get("nodeSelector") or {})),
    AGE,
    *_TEMPLATE,
)
STATEFUL_SET = table(NAME, computed("Ready", _ratio("status.readyReplicas", "spec.replicas")), AGE, *_TEMPLATE[:2])


def _controller(obj: Document) -> str:
    owners = obj["metadata"].get("ownerReferences") or []
    controller = next((owner for owner in owners if owner.get("controller")), None)
    if controller is None:
        return NONE
    group = controller["apiVersion"].rpartition("/")[0]
    return f"{controller['kind'].lower()}{'.' if group else ''}{group}/{controller['name']}"


CONTROLLER_REVISION = table(NAME, computed("Controller", _controller), integer("Revision", "revision"), AGE)


def _job_status(job: Document) -> str:
    true = {c.get("type") for c in lookup(job, ("status", "conditions")) or [] if c.get("status") == "True"}
    for condition in ("Complete", "Failed"):
        if condition in true:
            return condition
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((c for c in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if c in true), "Running")


def _completions(job: Document) -> str:
    succeeded = lookup(job, ("status", "succeeded")) or 0
    if job["spec"].get("completions") is not None:
        return f"{succeeded}/{job['spec']['completions']}"
    parallelism = job["spec"].get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(job: Document, now: datetime) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
    return human_duration(end - datetime.fromisoformat(status["startTime"]))


JOB = table(
    NAME,
    computed("Status", _job_status),
    computed("Completions", _completions),
    (Column("Duration"), _job_duration),
    AGE,
    *_TEMPLATE,
)


def _last_schedule(obj: Document, now: datetime) -> str:
    last = lookup(obj, ("status", "lastScheduleTime"))
    return age(last, now) if last else NONE


CRON_JOB = table(
    NAME,
    text("Schedule", "spec.schedule"),
    text("Timezone", "spec.timeZone", absent=NONE),
    computed("Suspend", lambda obj: str(bool(obj["spec"].get("suspend"))), "boolean"),
    computed("Active", lambda obj: len(lookup(obj, ("status", "active")) or []), "integer"),
    (Column("Last Schedule"), _last_schedule),
    AGE,
    *_TEMPLATE,
)
