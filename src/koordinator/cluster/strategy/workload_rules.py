"""What workloads must say around their pod templates."""

from __future__ import annotations

import re
from typing import Any, Final

from koordinator.api.document import Document, same
from koordinator.api.names import dns_label, path_segment
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid, not_supported, required
from koordinator.cluster.strategy.metadata import validate_annotations, validate_label_selector, validate_labels
from koordinator.cluster.strategy.pod_validation import check_pod_spec
from koordinator.cluster.strategy.rules import (
    IMMUTABLE,
    NOT_NEGATIVE,
    Check,
    Rules,
    at_least,
    not_negative,
    one_of,
    positive,
    required_name,
)
from koordinator.cluster.strategy.storage_rules import claim_spec

_MISMATCH: Final = "`selector` does not match template `labels`"
_PERCENT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


def check_template(template: Document, field: str, volumes: tuple[str, ...] = ()) -> list[Cause]:
    """What is wrong with a pod template; ``volumes`` are the names of those that come from elsewhere."""
    metadata = template.get("metadata") or {}
    # The real server leaves ``metadata`` out of these paths.
    causes = validate_labels(metadata.get("labels"), f"{field}.labels")
    causes += validate_annotations(metadata.get("annotations") or {}, f"{field}.annotations")
    spec = template.get("spec") or {}
    causes += check_pod_spec(spec, f"{field}.spec", metadata.get("labels") or {}, volumes)
    if spec.get("ephemeralContainers"):
        causes.append(
            forbidden(f"{field}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
        )
    return causes


def _kept_running(template: Document, field: str, kind: str) -> list[Cause]:
    """Pods that are replaced when they end neither end by themselves nor by a deadline."""
    spec = template.get("spec") or {}
    policy, deadline = spec.get("restartPolicy") or "", spec.get("activeDeadlineSeconds")
    at = f"{field}.spec"
    causes = [] if policy == "Always" else [not_supported(f"{at}.restartPolicy", policy, ("Always",))]
    if deadline is not None:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        causes.append(forbidden(f"{at}.activeDeadlineSeconds", detail))
    return causes


def matches(selector: Document | None, labels: Document) -> bool:
    """Whether a valid LabelSelector selects what has the labels; one that is absent selects nothing."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _meets(requirement, labels) for requirement in selector.get("matchExpressions") or ()
    )


def _meets(requirement: Document, labels: Document) -> bool:
    key, operator, values = requirement.get("key") or "", requirement.get("operator"), requirement.get("values") or ()
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) == (operator == "Exists")


def _is_empty(selector: Document) -> bool:
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def _labels(spec: Document) -> Document | None:
    found: Document | None = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    return found


def _selected(spec: Document, kind: str) -> tuple[list[Cause], bool]:
    """What is wrong with the selector, and whether the template can be compared with it."""
    selector, field = spec.get("selector"), "spec.selector"
    if selector is None:
        return [required(field)], True
    wrong = validate_label_selector(selector, field)
    if _is_empty(selector):
        wrong.append(invalid(field, selector, f"empty selector is invalid for {kind}"))
        return wrong, True
    detail = "" if kind == "statefulset" else "invalid label selector"
    return ([*wrong, invalid(field, selector, detail)], False) if wrong else ([], True)


def _mismatch(spec: Document) -> list[Cause]:
    selector, labels = spec.get("selector"), _labels(spec)
    if (selector is not None and _is_empty(selector)) or matches(selector, labels or {}):
        return []
    return [invalid("spec.template.metadata.labels", labels, _MISMATCH)]


def _frozen_selector(obj: Document, old: Document | None) -> list[Cause]:
    selector = obj["spec"].get("selector")
    changed = old is not None and not same(selector, old["spec"].get("selector"))
    return [invalid("spec.selector", selector, IMMUTABLE)] if changed else []


def amount(value: Any, field: str) -> list[Cause]:
    """A number or a share of pods."""
    if value is None or isinstance(value, int):
        return not_negative(value, field)
    return [] if re.fullmatch("[0-9]+%", value) else [invalid(field, value, _PERCENT)]


def _share(value: Any, field: str) -> list[Cause]:
    too_much = isinstance(value, str) and re.fullmatch("[0-9]+%", value) and int(value[:-1]) > 100
    return [invalid(field, value, "must not be greater than 100%")] if too_much else []


def _is_zero(value: Any) -> bool:
    """A text that is no share counts as nothing."""
    return value in (None, 0) or (isinstance(value, str) and not re.fullmatch("[0-9]*[1-9][0-9]*%", value))


# Deployments and ReplicaSets.


_COUNTS: Final = Rules(("spec.replicas", not_negative), ("spec.minReadySeconds", not_negative))
_DEPLOYMENT: Final = Rules(
    ("spec.minReadySeconds", not_negative),
    ("spec.revisionHistoryLimit", not_negative),
    ("spec.progressDeadlineSeconds", not_negative),
)


def deployment(obj: Document, old: Document | None) -> list[Cause]:
    spec = obj["spec"]
    causes = not_negative(spec.get("replicas"), "spec.replicas")
    causes += _selector_and_template(spec, "deployment", "ReplicaSet")
    causes += _deployment_strategy(spec["strategy"], "spec.strategy") + _DEPLOYMENT.check(obj)
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        causes.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return causes + _frozen_selector(obj, old)


def replica_set(obj: Document, old: Document | None) -> list[Cause]:
    causes = _COUNTS.check(obj) + _selector_and_template(obj["spec"], "deployment", "ReplicaSet")
    return causes + _frozen_selector(obj, old)


def _selector_and_template(spec: Document, kind: str, of: str) -> list[Cause]:
    causes, comparable = _selected(spec, kind)
    if not comparable:
        return causes
    template = spec.get("template") or {}
    causes += _mismatch(spec) + check_template(template, "spec.template")
    # An empty template has no policy yet.
    return causes + (_kept_running(template, "spec.template", of) if template.get("spec") else [])


def _deployment_strategy(strategy: Document, field: str) -> list[Cause]:
    kind, rolling = strategy.get("type") or "", strategy.get("rollingUpdate")
    if kind == "Recreate":
        detail = "may not be specified when strategy `type` is 'Recreate'"
        return [forbidden(f"{field}.rollingUpdate", detail)] if rolling is not None else []
    if kind != "RollingUpdate":
        return [not_supported(field, strategy, ("Recreate", "RollingUpdate"))]
    if rolling is None:
        return [required(f"{field}.rollingUpdate", "this should be defaulted and never be nil")]
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    at = f"{field}.rollingUpdate"
    causes = amount(unavailable, f"{at}.maxUnavailable") + amount(surge, f"{at}.maxSurge")
    if _is_zero(unavailable) and _is_zero(surge):
        detail = "may not be 0 when `maxSurge` is 0"
        causes.append(invalid(f"{at}.maxUnavailable", unavailable, detail))
    return causes + _share(unavailable, f"{at}.maxUnavailable")


# DaemonSets.


def daemon_set(obj: Document, old: Document | None) -> list[Cause]:
    spec = obj["spec"]
    selector = spec.get("selector")
    causes = validate_label_selector(selector or {}, "spec.selector")
    if not causes and not matches(selector, _labels(spec) or {}):
        causes.append(invalid("spec.template.metadata.labels", _labels(spec), _MISMATCH))
    if selector is not None and _is_empty(selector):
        causes.append(invalid("spec.selector", selector, "empty selector is invalid for daemonset"))
    template = spec.get("template") or {}
    causes += check_template(template, "spec.template")
    causes += _kept_running(template, "spec.template", "DaemonSet") if template.get("spec") else []
    causes += not_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    causes += _daemon_strategy(spec["updateStrategy"], "spec.updateStrategy")
    causes += not_negative(spec.get("revisionHistoryLimit"), "spec.revisionHistoryLimit")
    return causes + _frozen_selector(obj, old)


def _daemon_strategy(strategy: Document, field: str) -> list[Cause]:
    kind, rolling = strategy.get("type") or "", strategy.get("rollingUpdate")
    if kind == "OnDelete":
        return []
    if kind != "RollingUpdate":
        return [not_supported(field, strategy, ("RollingUpdate", "OnDelete"))]
    if rolling is None:
        return [required(f"{field}.rollingUpdate")]
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    at = f"{field}.rollingUpdate"
    causes = amount(unavailable, f"{at}.maxUnavailable") + amount(surge, f"{at}.maxSurge")
    causes += _share(unavailable, f"{at}.maxUnavailable") + _share(surge, f"{at}.maxSurge")
    if not _is_zero(unavailable) and not _is_zero(surge):
        causes.append(invalid(f"{at}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif _is_zero(unavailable) and _is_zero(surge):
        causes.append(required(f"{at}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return causes


# StatefulSets.


_RETENTION: Final = one_of("Retain", "Delete")
_STATEFUL: Final = Rules(
    ("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", _RETENTION),
    ("spec.persistentVolumeClaimRetentionPolicy.whenScaled", _RETENTION),
    ("spec.replicas", not_negative),
    ("spec.minReadySeconds", not_negative),
    ("spec.ordinals.start", not_negative),
)
_MAY_CHANGE: Final = frozenset(
    {
        "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
    }
)  # fmt: skip
_STATEFUL_UPDATE: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


def stateful_set(obj: Document, old: Document | None) -> list[Cause]:
    spec = obj["spec"]
    policy = spec.get("podManagementPolicy") or ""
    causes: list[Cause] = []
    if policy not in ("OrderedReady", "Parallel"):
        causes.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    causes += _stateful_strategy(spec["updateStrategy"], "spec.updateStrategy") + _STATEFUL.check(obj)
    causes += _stateful_template(spec)
    if old is None and (name := spec.get("serviceName")):
        causes += [invalid("spec.serviceName", name, detail) for detail in dns_label(name)]
    for index, claim in enumerate((spec.get("volumeClaimTemplates") or ()) if old is None else ()):
        causes += claim_spec.check(claim["spec"], f"spec.volumeClaimTemplates[{index}].spec")
    before = {} if old is None else old["spec"]
    fixed = (set(spec) | set(before)) - _MAY_CHANGE
    if old is not None and not all(same(spec.get(name), before.get(name)) for name in fixed):
        causes.append(forbidden("spec", _STATEFUL_UPDATE))
    return causes


def _stateful_strategy(strategy: Document, field: str) -> list[Cause]:
    kind, rolling = strategy.get("type") or "", strategy.get("rollingUpdate")
    if kind == "OnDelete":
        detail = "only allowed for updateStrategy 'RollingUpdate'"
        return [] if rolling is None else [invalid(f"{field}.rollingUpdate", rolling, detail)]
    if kind != "RollingUpdate":
        return [invalid(field, strategy, "must be 'RollingUpdate' or 'OnDelete'")]
    return not_negative((rolling or {}).get("partition"), f"{field}.rollingUpdate.partition")


def _stateful_template(spec: Document) -> list[Cause]:
    causes, comparable = _selected(spec, "statefulset")
    if not comparable:
        return causes
    template = spec.get("template") or {}
    claims = [(claim.get("metadata") or {}).get("name") or "" for claim in spec.get("volumeClaimTemplates") or ()]
    causes += _mismatch(spec)
    for index, name in enumerate(claims):
        # The real server looks at the claims as volumes of the template, in front of the others.
        at = f"spec.template.spec.volumes[{index}]"
        if not name:
            causes += [required(f"{at}.persistentVolumeClaim.claimName"), required(f"{at}.name")]
        causes += [invalid(f"{at}.name", name, detail) for detail in dns_label(name)] if name else []
    causes += check_template(template, "spec.template", tuple(claims))
    return causes + (_kept_running(template, "spec.template", "StatefulSet") if template.get("spec") else [])


# ReplicationControllers and PodTemplates.


def replication_controller(obj: Document, old: Document | None) -> list[Cause]:
    spec = obj["spec"]
    causes = not_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    selector, template = spec.get("selector") or {}, spec.get("template")
    if not selector:
        causes.append(required("spec.selector"))
    causes += not_negative(spec.get("replicas"), "spec.replicas")
    if template is None:
        return [*causes, required("spec.template")]
    labels = _labels(spec)
    if any((labels or {}).get(key) != value for key, value in selector.items()):
        causes.append(invalid("spec.template.metadata.labels", labels, _MISMATCH))
    causes += check_template(template, "spec.template")
    return causes + (_kept_running(template, "spec.template", "ReplicationController") if template.get("spec") else [])


def pod_template(obj: Document, old: Document | None) -> list[Cause]:
    return check_template(obj.get("template") or {}, "template")


# Autoscalers.


def _with_group(value: Any, field: str) -> list[Cause]:
    return [] if "/" in (value or "") else [invalid(field, value or "", "apiVersion must specify API group")]


_SCALER: Final = Rules(
    ("spec.minReplicas", at_least(1, "must be greater than or equal to 1")),
    ("spec.maxReplicas", lambda value, field: positive(value or 0, field)),
    ("spec.scaleTargetRef.kind", required_name(path_segment)),
    ("spec.scaleTargetRef.name", required_name(path_segment)),
)


def _average_utilization(metric: Document) -> Any:
    return ((metric.get("resource") or {}).get("target") or {}).get("averageUtilization")


def horizontal_pod_autoscaler(obj: Document, old: Document | None) -> list[Cause]:
    """Of both versions; the real server converts version 1 before it looks at it: hence the paths of the metrics."""
    spec = obj["spec"]
    metrics = spec.get("metrics") or []
    least, most, target = spec.get("minReplicas"), spec.get("maxReplicas") or 0, spec["scaleTargetRef"]
    causes = _SCALER.check(obj)
    if least is not None and most < least:
        causes.append(invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"))
    if not (target.get("kind") == "ReplicationController" and target.get("apiVersion") == "v1"):
        causes += _with_group(target.get("apiVersion"), "spec.scaleTargetRef.apiVersion")
    usages = [spec.get("targetCPUUtilizationPercentage")]
    usages = usages if usages[0] is not None else [_average_utilization(metric) for metric in metrics]
    for index, usage in enumerate(usages):
        if usage is not None:
            causes += positive(usage, f"spec.metrics[{index}].resource.target.averageUtilization")
    if least == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        causes.append(forbidden("spec.metrics", detail))
    return causes


# Revisions, which controllers keep the templates of old generations in.


def controller_revision(obj: Document, old: Document | None) -> list[Cause]:
    data, revision = obj.get("data"), obj.get("revision") or 0
    causes: list[Cause] = []
    if old is None and data is None:
        causes.append(required("data", "data is mandatory"))
    elif old is None and not isinstance(data, dict):
        causes.append(required("data", "data must be a valid JSON object"))
    if revision < 0:
        causes.append(invalid("revision", revision, NOT_NEGATIVE))
    if old is not None and not same(data, old.get("data")):
        causes.append(invalid("data", data, IMMUTABLE))
    return causes


WORKLOADS: Final[dict[str, Check]] = {
    "Deployment": deployment,
    "ReplicaSet": replica_set,
    "DaemonSet": daemon_set,
    "StatefulSet": stateful_set,
}
