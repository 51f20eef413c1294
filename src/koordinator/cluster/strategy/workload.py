"""Workloads: what apps/v1, batch/v1 and the older core kinds fill in around their pod templates."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.cron_schedule import ScheduleError, parse_schedule, time_zone
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy import containers as _containers  # noqa: F401  registers the defaults
from koordinator.cluster.strategy.causes import invalid, not_supported, required
from koordinator.cluster.strategy.containers import default_each, defaults_of
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.pod_validation import check_pod_spec
from koordinator.cluster.strategy.table import lookup

_APPS: Final = "io.k8s.api.apps.v1."
_BATCH: Final = "io.k8s.api.batch.v1."
_CONCURRENCY_POLICIES: Final = ("Allow", "Forbid", "Replace")
_LONGEST_CRON_JOB_NAME: Final = 52
"""The names of its Jobs have eleven characters more."""
_IMMUTABLE_OF_JOBS: Final = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_PLACEMENT: Final = ("affinity", "nodeSelector", "tolerations", "schedulingGates")
_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


@defaults_of(f"{_APPS}DeploymentSpec")
def _deployment(spec: Document) -> None:
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec["strategy"]
    default_each(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


@defaults_of(f"{_APPS}DaemonSetSpec")
def _daemon_set(spec: Document) -> None:
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec["updateStrategy"]
    default_each(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)


@defaults_of(f"{_APPS}StatefulSetSpec")
def _stateful_set(spec: Document) -> None:
    default_each(spec, "podManagementPolicy", "OrderedReady")
    strategy = spec["updateStrategy"]
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    default_each(retention, "whenDeleted", "Retain")
    default_each(retention, "whenScaled", "Retain")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)


@defaults_of(f"{_APPS}ReplicaSetSpec")
def _replica_set(spec: Document) -> None:
    spec.setdefault("replicas", 1)


@defaults_of("io.k8s.api.core.v1.ReplicationController")
def _replication_controller(controller: Document) -> None:
    spec = controller["spec"]
    spec.setdefault("replicas", 1)
    labels = lookup(spec, ("template", "metadata", "labels"))
    if labels:
        default_each(spec, "selector", dict(labels))
        default_each(controller["metadata"], "labels", dict(labels))


@defaults_of(f"{_BATCH}Job")
def _job(job: Document) -> None:
    # Of jobs alone: the template in a CronJob stays as it was written.
    spec = job["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if spec.get("backoffLimitPerIndex") is not None else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)


@defaults_of(f"{_BATCH}CronJobSpec")
def _cron_job(spec: Document) -> None:
    default_each(spec, "concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)


class WorkloadStrategy(ObjectStrategy):
    """Kinds with ``spec.selector`` and ``spec.template``: the one must match the other and stay."""

    def __init__(self, api_version: str, kind: str, **options: Any) -> None:
        super().__init__(api_version, kind, generation=True, status=True, **options)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        spec = obj["spec"]
        template = spec.get("template") or {}
        labels = lookup(template, ("metadata", "labels")) or {}
        causes: list[Cause] = []
        if (spec.get("replicas") or 0) < 0:
            causes.append(invalid("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
        causes += _check_selector(spec.get("selector"), labels)
        causes += check_pod_spec(template.get("spec") or {}, "spec.template.spec", labels)
        if old is not None and spec.get("selector") != old["spec"].get("selector"):
            causes.append(invalid("spec.selector", spec.get("selector"), "field is immutable"))
        return causes


class DaemonSetStrategy(WorkloadStrategy):
    """DaemonSets count their templates in an annotation, which old controllers read."""

    def initialize(self, obj: Document, context: RequestContext) -> None:
        _count_template(obj, 1)

    def admit_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        before = (old["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION) or "1"
        changed = obj["spec"]["template"] != old["spec"]["template"]
        _count_template(obj, (int(before) if before.isdigit() else 1) + changed)


def _count_template(obj: Document, generation: int) -> None:
    obj["metadata"].setdefault("annotations", {})[_TEMPLATE_GENERATION] = str(generation)


def _check_selector(selector: Document | None, labels: Document) -> list[Cause]:
    causes = []
    if selector is None:
        causes.append(required("spec.selector"))
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        causes.append(invalid("spec.selector", selector, "empty selector is invalid for deployment"))
    wanted = (selector or {}).get("matchLabels") or {}
    if selector is None or any(labels.get(key) != value for key, value in wanted.items()):
        causes.append(invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"))
    return causes


class JobStrategy(ObjectStrategy):
    """Jobs get a selector of their own from the UID, which the verb sets before it calls the strategy."""

    def __init__(self, **options: Any) -> None:
        super().__init__("batch/v1", "Job", generation=True, status=True, **options)

    def initialize(self, obj: Document, context: RequestContext) -> None:
        spec, metadata = obj["spec"], obj["metadata"]
        if spec.get("manualSelector"):
            return
        uid = metadata.get("uid") or ""
        labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
        for prefix in ("", "batch.kubernetes.io/"):
            labels.setdefault(f"{prefix}controller-uid", uid)
            labels.setdefault(f"{prefix}job-name", metadata.get("name") or "")
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        spec = obj["spec"]
        template = spec["template"]
        labels = lookup(template, ("metadata", "labels")) or {}
        causes = check_pod_spec(template["spec"], "spec.template.spec", labels)
        for name in ("parallelism", "completions", "backoffLimit"):
            if (spec.get(name) or 0) < 0:
                causes.append(invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0"))
        if template["spec"].get("restartPolicy") == "Always":
            cause = 'Required value: valid values: "OnFailure", "Never"'
            causes.append(Cause("FieldValueRequired", "spec.template.spec.restartPolicy", cause))
        causes += _check_indexes(spec) + _check_failure_policy(spec)
        resized = old is not None and spec.get("completions") != old["spec"].get("completions")
        if resized and spec.get("completionMode") != "Indexed":
            causes.append(invalid("spec.completions", spec.get("completions"), "field is immutable"))
        if old is not None:
            causes += _check_same(spec, old)
        return causes


def _check_indexes(spec: Document) -> list[Cause]:
    """What only a Job with indexes may have, and what it must have."""
    causes = []
    if spec.get("completionMode") == "Indexed":
        if spec.get("completions") is None:
            causes.append(required("spec.completions", "when completion mode is Indexed"))
    else:
        causes += [
            invalid(f"spec.{name}", spec[name], "requires indexed completion mode")
            for name in ("backoffLimitPerIndex", "successPolicy")
            if spec.get(name) is not None
        ]
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        causes.append(required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    return causes


def _check_failure_policy(spec: Document) -> list[Cause]:
    if spec.get("podFailurePolicy") is None:
        return []
    causes = []
    restart = spec["template"]["spec"].get("restartPolicy")
    if restart != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        causes.append(invalid("spec.template.spec.restartPolicy", restart, detail))
    if spec.get("podReplacementPolicy") != "Failed":
        causes.append(not_supported("spec.podReplacementPolicy", spec.get("podReplacementPolicy"), ("Failed",)))
    return causes


def _check_same(spec: Document, old: Document) -> list[Cause]:
    """What of a Job cannot be changed; where its pods go can, as long as it never ran."""
    before = old["spec"]
    has_run = not before.get("suspend") or bool(lookup(old, ("status", "startTime")))
    causes = [
        invalid(f"spec.{name}", spec.get(name), "field is immutable")
        for name in _IMMUTABLE_OF_JOBS
        if spec.get(name) != before.get(name)
    ]
    one, other = (_without_placement(each["template"], has_run=has_run) for each in (spec, before))
    if one != other:
        causes.append(invalid("spec.template", spec["template"], "field is immutable"))
    return causes


def _without_placement(template: Document, *, has_run: bool) -> Document:
    if has_run:
        return template
    metadata = {k: v for k, v in (template.get("metadata") or {}).items() if k not in ("labels", "annotations")}
    return {"metadata": metadata, "spec": {k: v for k, v in template["spec"].items() if k not in _PLACEMENT}}


class CronJobStrategy(ObjectStrategy):
    """CronJobs have a schedule and a time zone that their controller can read."""

    def __init__(self, **options: Any) -> None:
        super().__init__("batch/v1", "CronJob", generation=True, status=True, **options)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        spec = obj["spec"]
        causes = _check_schedule(spec.get("schedule") or "", lookup(old or {}, ("spec", "schedule")))
        if spec.get("timeZone") is not None:
            causes += _check_time_zone(spec["timeZone"])
        for name in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
            if (spec.get(name) or 0) < 0:
                causes.append(invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0"))
        if spec.get("concurrencyPolicy") not in _CONCURRENCY_POLICIES:
            causes.append(not_supported("spec.concurrencyPolicy", spec["concurrencyPolicy"], _CONCURRENCY_POLICIES))
        name = obj["metadata"].get("name") or ""
        if old is None and len(name) > _LONGEST_CRON_JOB_NAME:
            causes.append(invalid("metadata.name", name, f"must be no more than {_LONGEST_CRON_JOB_NAME} characters"))
        return causes


def _check_schedule(text: str, old: str | None) -> list[Cause]:
    if not text:
        return [required("spec.schedule")]
    causes = []
    try:
        parse_schedule(text)
    except ScheduleError as error:
        causes.append(invalid("spec.schedule", text, str(error)))
    # Objects from a time when it was allowed keep it.
    if "TZ" in text and "TZ" not in (old or ""):
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        causes.append(invalid("spec.schedule", text, detail))
    return causes


def _check_time_zone(name: str) -> list[Cause]:
    if not name:
        return [invalid("spec.timeZone", name, "timeZone must be nil or non-empty string")]
    if name.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        return [invalid("spec.timeZone", name, detail)]
    try:
        time_zone(name)
    except ScheduleError as error:
        return [invalid("spec.timeZone", name, str(error))]
    return []
