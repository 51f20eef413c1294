"""Workloads: what apps/v1, batch/v1 and the older core kinds fill in around their pod templates."""

from __future__ import annotations

import re
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.canonical import WrongType
from koordinator.cluster.resource import RequestContext
from koordinator.cluster.strategy import pod as _pod  # noqa: F401  registers the defaults
from koordinator.cluster.strategy.causes import go_quoted
from koordinator.cluster.strategy.job_rules import job
from koordinator.cluster.strategy.object_strategy import ObjectStrategy, default_each, defaults_of
from koordinator.cluster.strategy.table import lookup
from koordinator.cluster.strategy.workload_rules import WORKLOADS

_APPS: Final = "io.k8s.api.apps.v1."
_BATCH: Final = "io.k8s.api.batch.v1."
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


@defaults_of(f"{_BATCH}PodFailurePolicyOnPodConditionsPattern")
def _pod_condition(pattern: Document) -> None:
    default_each(pattern, "status", "True")


@defaults_of(f"{_BATCH}CronJobSpec")
def _cron_job(spec: Document) -> None:
    default_each(spec, "concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)


class WorkloadStrategy(ObjectStrategy):
    """Kinds with ``spec.selector`` and ``spec.template``."""

    def __init__(self, api_version: str, kind: str, **options: Any) -> None:
        super().__init__(api_version, kind, generation=True, status=True, check=WORKLOADS[kind], **options)


class DaemonSetStrategy(WorkloadStrategy):
    """DaemonSets count their templates in an annotation, which old controllers read."""

    def convert(self, obj: Document) -> None:
        if _TEMPLATE_GENERATION in (obj["metadata"].get("annotations") or {}):
            _count_template(obj, _counted_template(obj))

    def initialize(self, obj: Document, context: RequestContext) -> None:
        _count_template(obj, max(1, _counted_template(obj)))

    def carry_over(self, obj: Document, old: Document, context: RequestContext) -> None:
        changed = obj["spec"]["template"] != old["spec"]["template"]
        _count_template(obj, _counted_template(old) + changed)


def _counted_template(obj: Document) -> int:
    """The generation that the annotation tells, 1 without one. Raises WrongType in the words of Go's ParseInt."""
    text: str = (obj["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION, "1")
    if not re.fullmatch("[+-]?[0-9]+", text):
        raise WrongType(f"strconv.ParseInt: parsing {go_quoted(text)}: invalid syntax")
    if not -(2**63) <= int(text) < 2**63:
        raise WrongType(f"strconv.ParseInt: parsing {go_quoted(text)}: value out of range")
    return int(text)


def _count_template(obj: Document, generation: int) -> None:
    obj["metadata"].setdefault("annotations", {})[_TEMPLATE_GENERATION] = str(generation)


class JobStrategy(ObjectStrategy):
    """Jobs get a selector of their own from the UID, which the verb sets before it calls the strategy."""

    def __init__(self, **options: Any) -> None:
        super().__init__("batch/v1", "Job", generation=True, status=True, check=job, **options)

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
