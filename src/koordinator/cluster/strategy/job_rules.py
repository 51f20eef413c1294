"""What Jobs and CronJobs must say."""

from __future__ import annotations

import re
from typing import Any, Final

from koordinator.api.document import Document, same
from koordinator.api.names import dns_label, label_key
from koordinator.cluster.cron_schedule import ScheduleError, parse_schedule, time_zone
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import go_quoted, invalid, not_supported, required
from koordinator.cluster.strategy.metadata import validate_label_selector
from koordinator.cluster.strategy.rules import IMMUTABLE, Rules, choice, not_negative, one_of, one_of_if_set, optional
from koordinator.cluster.strategy.workload_rules import check_template, matches

_PODS_LIMIT: Final = 100_000
"""Of an indexed Job, which keeps the state of each index."""
_PREFIXES: Final = ("", "batch.kubernetes.io/")
"""Of the labels of a Job's pods; those without one are older."""
_NAME_LIMIT: Final = 52
"""Of a CronJob, whose Jobs append eleven characters."""


def _counts(spec: str) -> Rules:
    return Rules(
        *(
            (f"{spec}.{name}", not_negative)
            for name in (
                "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
                "backoffLimitPerIndex", "maxFailedIndexes",
            )
        ),
        (f"{spec}.completionMode", one_of_if_set("NonIndexed", "Indexed")),
    )  # fmt: skip


_JOB: Final = _counts("spec")
_TEMPLATE: Final = _counts("spec.jobTemplate.spec")
_FROZEN: Final = (
    "selector",
    "template",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "successPolicy",
    "managedBy",
)


def job(obj: Document, old: Document | None) -> list[Cause]:
    spec = obj["spec"]
    causes = _generated(obj["metadata"], spec) + _JOB.check(obj) + _job_spec(spec, "spec") + _selector(spec)
    if spec.get("completionMode") == "Indexed" and (spec.get("completions") or 0) > 0:
        causes += _pod_name(obj["metadata"].get("name") or "", spec["completions"])
    return causes if old is None else causes + _job_update(spec, old)


def _pod_name(name: str, completions: int) -> list[Cause]:
    """The name of the last pod must be a host name."""
    longest = f"{name}-{completions - 1}"
    detail = "will not able to create pod with invalid DNS label: "
    return [invalid("metadata.name", name, f"{detail}{longest}")] if dns_label(longest) else []


def _job_update(spec: Document, before: Document) -> list[Cause]:
    old = before["spec"]
    is_new = bool(old.get("suspend")) and not (before.get("status") or {}).get("startTime")
    frozen = [name for name in _FROZEN if name != "template" or not (is_new and _differ_in_placement(spec, old))]
    return _completions_update(spec, old) + [
        invalid(f"spec.{name}", spec.get(name), IMMUTABLE) for name in frozen if not same(spec.get(name), old.get(name))
    ]


def _completions_update(spec: Document, old: Document) -> list[Cause]:
    """Indexed Jobs grow and shrink; whether they have completions at all is asked elsewhere."""
    completions, is_indexed = spec.get("completions"), spec.get("completionMode") == "Indexed"
    if completions == old.get("completions") or (is_indexed and completions in (None, spec.get("parallelism"))):
        return []
    detail = "can only be modified in tandem with spec.parallelism" if is_indexed else IMMUTABLE
    return [invalid("spec.completions", completions, detail)]


def _differ_in_placement(spec: Document, old: Document) -> bool:
    """Whether the templates differ in nothing but where the pods go, which may change while the Job has not begun."""
    names = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
    trimmed = []
    for each in (spec, old):
        template = each.get("template") or {}
        inner = {key: value for key, value in (template.get("spec") or {}).items() if key not in names}
        trimmed.append({**template, "spec": inner, "metadata": None})
    return same(*trimmed)


def _labels(spec: Document) -> Document | None:
    found: Document | None = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    return found


def _selector(spec: Document) -> list[Cause]:
    selector, labels = spec.get("selector"), _labels(spec)
    wrong = validate_label_selector(selector or {}, "spec.selector")
    causes = wrong if selector is not None else [required("spec.selector")]
    if not wrong and not matches(selector, labels or {}):
        causes.append(invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"))
    return causes


def _generated(metadata: Document, spec: Document) -> list[Cause]:
    """Whether the selector and the labels are those that the server gives to a Job."""
    selector, labels = spec.get("selector"), _labels(spec) or {}
    if spec.get("manualSelector") or selector is None:
        return []
    uid, name = metadata.get("uid") or "", metadata.get("name") or ""
    given = {
        f"{prefix}{key}": value for prefix in _PREFIXES for key, value in (("controller-uid", uid), ("job-name", name))
    }
    causes: list[Cause] = []
    for key, wanted in given.items():
        field, detail = f"spec.template.metadata.labels[{key}]", f"must be '{wanted}'"
        if key not in labels:
            causes.append(required(field, detail))
        elif labels[key] != wanted:
            causes.append(invalid(field, labels, detail))
    if not validate_label_selector(selector, "spec.selector") and not matches(selector, given):
        causes.append(invalid("spec.selector", selector, "`selector` not auto-generated"))
    return causes


def _job_spec(spec: Document, field: str) -> list[Cause]:
    template = spec.get("template") or {}
    policy = (template.get("spec") or {}).get("restartPolicy") or ""
    at = f"{field}.template.spec.restartPolicy"
    causes = _indexed(spec, field)
    if spec.get("podFailurePolicy") is not None:
        causes += _failure_policy(spec, template, f"{field}.podFailurePolicy")
        if spec.get("podReplacementPolicy") not in (None, "Failed"):
            causes.append(not_supported(f"{field}.podReplacementPolicy", spec["podReplacementPolicy"], ("Failed",)))
    else:
        policies = ("Failed", "TerminatingOrFailed")
        causes += optional(*policies)(spec.get("podReplacementPolicy"), f"{field}.podReplacementPolicy")
    causes += _success_policy(spec, f"{field}.successPolicy")
    causes += check_template(template, f"{field}.template")
    if policy in ("", "Always"):
        causes.append(required(at, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        causes.append(not_supported(at, policy, ("OnFailure", "Never")))
    elif policy != "Never" and spec.get("podFailurePolicy") is not None:
        causes.append(invalid(at, policy, 'only "Never" is supported when podFailurePolicy is specified'))
    return causes


def _indexed(spec: Document, field: str) -> list[Cause]:
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    failed = spec.get("maxFailedIndexes")
    causes: list[Cause] = []
    if failed is not None and spec.get("backoffLimitPerIndex") is None:
        causes.append(required(f"{field}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if spec.get("completionMode") != "Indexed":
        return causes + [
            invalid(f"{field}.{name}", spec[name], _NEEDS_INDEXES)
            for name in ("backoffLimitPerIndex", "maxFailedIndexes")
            if spec.get(name) is not None and spec.get("completionMode") in (None, "NonIndexed")
        ]
    if completions is None:
        causes.append(required(f"{field}.completions", "when completion mode is Indexed"))
    if (parallelism or 0) > _PODS_LIMIT:
        detail = f"must be less than or equal to {_PODS_LIMIT} when completion mode is Indexed"
        causes.append(invalid(f"{field}.parallelism", parallelism, detail))
    if failed is not None and completions is not None and failed > completions:
        causes.append(invalid(f"{field}.maxFailedIndexes", failed, "must be less than or equal to completions"))
    if (failed or 0) > _PODS_LIMIT:
        causes.append(invalid(f"{field}.maxFailedIndexes", failed, f"must be less than or equal to {_PODS_LIMIT}"))
    return causes


# Policies for failed pods.


_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS: Final = ("In", "NotIn")
_NO_CONTAINER: Final = "must be one of the container or initContainer names in the pod template"


def _listed(values: tuple[str, ...]) -> str:
    return "valid values: [" + " ".join(f'"{value}"' for value in values) + "]"


def _named_choice(value: str, field: str, allowed: tuple[str, ...]) -> list[Cause]:
    if not value:
        return [required(field, _listed(allowed))]
    return [] if value in allowed else [not_supported(field, value, allowed)]


def _failure_policy(spec: Document, template: Document, field: str) -> list[Cause]:
    pod = template.get("spec") or {}
    containers = {c.get("name") for group in ("containers", "initContainers") for c in pod.get(group) or ()}
    causes: list[Cause] = []
    for index, rule in enumerate(spec["podFailurePolicy"].get("rules") or ()):
        at = f"{field}.rules[{index}]"
        causes += _named_choice(rule.get("action") or "", f"{at}.action", _ACTIONS)
        if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            causes.append(invalid(f"{at}.action", "FailIndex", "requires the backoffLimitPerIndex to be set"))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            causes += _exit_codes(codes, containers, f"{at}.onExitCodes")
        for position, condition in enumerate(conditions):
            causes += _condition(condition, f"{at}.onPodConditions[{position}]")
        if (codes is None) == (not conditions):
            one, wish = ("one of", "required") if codes is None else ("both", "not supported")
            text = f"Invalid value: specifying {one} OnExitCodes and OnPodConditions is {wish}"
            causes.append(Cause("FieldValueInvalid", at, text))
    return causes


def _exit_codes(codes: Document, containers: set[Any], field: str) -> list[Cause]:
    operator, values, name = codes.get("operator") or "", codes.get("values"), codes.get("containerName")
    causes = _named_choice(operator, f"{field}.operator", _OPERATORS)
    if name is not None and name not in containers:
        causes.append(invalid(f"{field}.containerName", name, _NO_CONTAINER))
    for index, value in enumerate(values or ()):
        at = f"{field}.values[{index}]"
        if operator == "In" and value == 0:
            causes.append(invalid(at, value, "must not be 0 for the In operator"))
        if value in (values or ())[:index]:
            causes.append(Cause("FieldValueDuplicate", at, f"Duplicate value: {value}"))
    if not values:
        causes.append(invalid(f"{field}.values", values, "at least one value is required"))
    elif values != sorted(values):
        causes.append(invalid(f"{field}.values", values, "must be ordered"))
    return causes


def _condition(condition: Document, field: str) -> list[Cause]:
    kind = condition.get("type") or ""
    causes = [invalid(f"{field}.type", kind, detail) for detail in label_key(kind)]
    return causes + one_of("False", "True", "Unknown")(condition.get("status"), f"{field}.status")


# Policies for success.


_NEEDS_INDEXES: Final = "requires indexed completion mode"
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


def _success_policy(spec: Document, field: str) -> list[Cause]:
    policy = spec.get("successPolicy")
    if policy is None:
        return []
    if spec.get("completionMode") != "Indexed":
        return [invalid(field, policy, _NEEDS_INDEXES)]
    rules = policy.get("rules") or ()
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        return [required(f"{field}.rules", detail)]
    # Without completions there is another error, and nothing to compare with.
    completions = spec.get("completions") or 0
    return [c for index, rule in enumerate(rules) for c in _success_rule(rule, completions, f"{field}.rules[{index}]")]


def _success_rule(rule: Document, completions: int, field: str) -> list[Cause]:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        return [required(field, "at least one of succeededCount or succeededIndexes must be specified")]
    causes: list[Cause] = []
    limits = [(completions, "the number of specified completions")]
    if indexes is not None:
        total = 0
        try:
            total = _count_indexes(indexes, completions)
        except ValueError as error:
            causes.append(invalid(f"{field}.succeededIndexes", indexes, f"error parsing succeededIndexes: {error}"))
        limits.append((total, "the number of indexes in the specified succeededIndexes field"))
    if count is None:
        return causes
    at = f"{field}.succeededCount"
    return (
        causes
        + not_negative(count, at)
        + [invalid(at, count, f"must be less than or equal to {limit} ({of})") for limit, of in limits if count > limit]
    )


def _count_indexes(text: str, completions: int) -> int:
    """How many indexes ``1,3-5`` names; raises ValueError in the real server's words."""
    total, last = 0, -1
    for interval in text.split(",") if text else ():
        ends = interval.split("-")
        if len(ends) > 2:
            why = "violates the requirement that an index interval can have at most two parts separated by '-'"
            raise ValueError(f"the fragment {go_quoted(interval)} {why}")
        first, final = _index(ends[0], completions), _index(ends[-1], completions)
        if len(ends) > 1:
            _ascend(first, final)
        if total:
            _ascend(last, first)
        total, last = total + final - first + 1, final
    return total


def _index(text: str, completions: int) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"cannot convert string to integer for index: {go_quoted(text)}")
    if int(text) >= completions:
        raise ValueError(f"too large index: {go_quoted(text)}")
    return int(text)


def _ascend(before: int, now: int) -> None:
    if before >= now:
        raise ValueError(f"non-increasing order, previous: {before}, current: {now}")


# CronJobs.


_CRON: Final = Rules(
    ("spec.concurrencyPolicy", choice("Allow", "Forbid", "Replace")),
    ("spec.startingDeadlineSeconds", not_negative),
    ("spec.successfulJobsHistoryLimit", not_negative),
    ("spec.failedJobsHistoryLimit", not_negative),
)


def cron_job(obj: Document, old: Document | None) -> list[Cause]:
    spec, name = obj["spec"], obj["metadata"].get("name") or ""
    before = (old or {}).get("spec") or {}
    causes = _schedule(spec.get("schedule") or "", before.get("schedule") or "", "spec.schedule")
    if old is None or spec.get("timeZone") != before.get("timeZone"):
        causes += _time_zone(spec.get("timeZone"), "spec.timeZone")
    causes += _CRON.check(obj) + _TEMPLATE.check(obj)
    causes += _job_template(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")
    if old is None and len(name) > _NAME_LIMIT:
        causes.append(invalid("metadata.name", name, f"must be no more than {_NAME_LIMIT} characters"))
    return causes


def _job_template(spec: Document, field: str) -> list[Cause]:
    """Its Jobs get selectors of their own."""
    causes = _job_spec(spec, field)
    if spec.get("selector") is not None:
        causes.append(invalid(f"{field}.selector", spec["selector"], "`selector` will be auto-generated"))
    if spec.get("manualSelector"):
        causes.append(not_supported(f"{field}.manualSelector", True, ("nil", "false")))
    return causes


def _schedule(text: str, old: str, field: str) -> list[Cause]:
    """Objects from a time when a time zone was allowed in it keep it."""
    if not text:
        return [required(field)]
    if "TZ" in text and "TZ" not in old:
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        return [invalid(field, text, detail)]
    try:
        parse_schedule(text)
    except ScheduleError as error:
        return [invalid(field, text, str(error))]
    return []


def _time_zone(name: Any, field: str) -> list[Cause]:
    if name is None:
        return []
    if not name:
        return [invalid(field, name, "timeZone must be nil or non-empty string")]
    if name.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        return [invalid(field, name, detail)]
    try:
        time_zone(name)
    except ScheduleError as error:
        return [invalid(field, name, str(error))]
    return []
