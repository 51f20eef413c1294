"""HorizontalPodAutoscalers: kept as version 2; version 1 shows the CPU metric alone and the rest in annotations."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from koordinator.api.document import Document, copied
from koordinator.cluster.strategy.object_strategy import ObjectStrategy, default_each, defaults_of
from koordinator.cluster.strategy.table import AGE, NAME, NONE, UNSET, computed, lookup, table, text
from koordinator.cluster.strategy.workload_rules import horizontal_pod_autoscaler

KIND: Final = "HorizontalPodAutoscaler"
V1: Final = "autoscaling/v1"
V2: Final = "autoscaling/v2"
_TYPES: Final = "io.k8s.api.autoscaling"
_ANNOTATION: Final = "autoscaling.alpha.kubernetes.io/"
_TARGET, _CURRENT = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"
_CPU_PERCENT: Final = 80
"""The target of an autoscaler that names no metric."""
_PERCENT_RULE: Final = {"type": "Percent", "value": 100, "periodSeconds": 15}
_PODS_RULE: Final = {"type": "Pods", "value": 4, "periodSeconds": 15}
_SHOWN_METRICS: Final = 2
_IN_ANNOTATIONS: Final = (
    ("spec", "metrics", "metrics"),
    ("spec", "behavior", "behavior"),
    ("status", "currentMetrics", "current-metrics"),
    ("status", "conditions", "conditions"),
)
"""(part, field of version 2, annotation of version 1)."""


@defaults_of(f"{_TYPES}.v1.HorizontalPodAutoscalerSpec")
def _v1_spec(spec: Document) -> None:
    spec.setdefault("minReplicas", 1)


@defaults_of(f"{_TYPES}.v2.HorizontalPodAutoscalerSpec")
def _v2_spec(spec: Document) -> None:
    spec.setdefault("minReplicas", 1)
    default_each(spec, "metrics", [_cpu_metric(_CPU_PERCENT)])
    behavior = spec.get("behavior")
    if behavior is not None:
        up, down = behavior.setdefault("scaleUp", {}), behavior.setdefault("scaleDown", {})
        up.setdefault("stabilizationWindowSeconds", 0)
        for rules, policies in ((up, [_PODS_RULE, _PERCENT_RULE]), (down, [_PERCENT_RULE])):
            rules.setdefault("selectPolicy", "Max")
            default_each(rules, "policies", copied(policies))


class AutoscalerStrategy(ObjectStrategy):
    """Of one of the two versions."""

    def __init__(self, api_version: str) -> None:
        super().__init__(api_version, KIND, status=True, table=_TABLE, check=horizontal_pod_autoscaler)


def to_version_1(obj: Document) -> Document:
    """What is stored, as version 1. Takes over ``obj``."""
    spec, status = obj.setdefault("spec", {}), obj.setdefault("status", {})
    for part, field, short in ((spec, "metrics", _TARGET), (status, "currentMetrics", _CURRENT)):
        metrics: list[Document] = list(part.get(field) or [])
        side = "target" if part is spec else "current"
        cpu = next((metric for metric in metrics if _utilization(metric, side) is not None), None)
        if cpu is not None:
            part[short] = _utilization(cpu, side)
            metrics.remove(cpu)
        part[field] = metrics
    annotations = dict(obj["metadata"].get("annotations") or {})
    for name, field, annotation in _IN_ANNOTATIONS:
        value = obj[name].pop(field, None)
        if value:
            annotations[_ANNOTATION + annotation] = msgspec.json.encode(value).decode()
    if annotations:
        obj["metadata"]["annotations"] = annotations
    return {**obj, "apiVersion": V1}


def to_version_2(obj: Document) -> Document:
    """What version 1 has, as it is stored; an annotation that nobody can read stays one. ``obj`` is left as it is."""
    obj = copied(obj)
    spec, status, metadata = obj.setdefault("spec", {}), obj.setdefault("status", {}), obj["metadata"]
    annotations = metadata.get("annotations") or {}
    for name, field, annotation in _IN_ANNOTATIONS:
        kind = dict if field == "behavior" else list
        value = _read(annotations.get(_ANNOTATION + annotation), kind)
        if value is not None:
            obj[name][field] = value
            del annotations[_ANNOTATION + annotation]
    if not annotations:
        metadata.pop("annotations", None)
    if (wanted := spec.pop(_TARGET, None)) is not None:
        spec["metrics"] = [*(spec.get("metrics") or []), _cpu_metric(wanted)]
    default_each(spec, "metrics", [_cpu_metric(_CPU_PERCENT)])
    if (current := status.pop(_CURRENT, None)) is not None:
        measured = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": current}}}
        status["currentMetrics"] = [*(status.get("currentMetrics") or []), measured]
    return {**obj, "apiVersion": V2}


def from_stored(obj: Document) -> Document:
    """Version 2 of what is stored, which an earlier version of this server may have stored as version 1."""
    is_older = _TARGET in (obj.get("spec") or {}) or _CURRENT in (obj.get("status") or {})
    return to_version_2(obj) if is_older else obj


def from_stored_to_version_1(obj: Document) -> Document:
    return to_version_1(from_stored(obj))


def _read(text: str | None, kind: type) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None


def _cpu_metric(percent: int) -> Document:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _utilization(metric: Document, side: str) -> int | None:
    """Percent of the pods' CPU requests; None of any other metric."""
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    utilization: int | None = (resource.get(side) or {}).get("averageUtilization")
    return utilization


def _scale_target(obj: Document) -> str:
    reference = obj["spec"].get("scaleTargetRef") or {}
    return f"{reference.get('kind') or ''}/{reference.get('name') or ''}"


def _targets(obj: Document) -> str:
    """``cpu: 12%/80%, memory: 100Mi/200Mi``, as kubectl shows them."""
    if obj.get("apiVersion") == V1:
        obj = to_version_2(obj)
    metrics = obj["spec"].get("metrics") or []
    measured = lookup(obj, ("status", "currentMetrics")) or []
    texts = [
        _target(metric, measured[index] if index < len(measured) else {})
        for index, metric in enumerate(metrics[:_SHOWN_METRICS])
    ]
    more = f" + {len(metrics) - _SHOWN_METRICS} more..." if len(metrics) > _SHOWN_METRICS else ""
    return ", ".join(texts) + more or NONE


def _target(metric: Document, measured: Document) -> str:
    kind = metric.get("type") or ""
    source = kind[:1].lower() + kind[1:]
    wanted, found = metric.get(source) or {}, measured.get(source) or {}
    name = f"{wanted['name']}: " if wanted.get("name") else ""
    goal, current = wanted.get("target") or {}, found.get("current") or {}
    for field, unit in (("averageUtilization", "%"), ("averageValue", ""), ("value", "")):
        if goal.get(field) is not None:
            shown = current.get(field)
            return f"{name}{'<unknown>' if shown is None else f'{shown}{unit}'}/{goal[field]}{unit}"
    return f"{name}<unknown>/<auto>"


_TABLE: Final = table(
    NAME,
    computed("Reference", _scale_target),
    computed("Targets", _targets),
    computed("MinPods", lambda obj: str(obj["spec"].get("minReplicas") or UNSET)),
    text("MaxPods", "spec.maxReplicas", absent=0),
    text("Replicas", "status.currentReplicas", absent=0),
    AGE,
)
