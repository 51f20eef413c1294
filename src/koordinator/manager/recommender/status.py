"""What is written of a recommendation: the status of the object, the annotation with details, and when. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from koordinator.api.codec import encode, to_document
from koordinator.api.meta import Condition
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Format, Quantity
from koordinator.api.recommendation import (
    CONFIG_UNSUPPORTED,
    DETAILS,
    FETCHING_HISTORY,
    LOW_CONFIDENCE,
    NO_OBJECTS_MATCHED,
    ContainerDetails,
    Recommendation,
    RecommendedContainerStatus,
)
from koordinator.api.resource_names import CPU
from koordinator.base.durations import format_duration
from koordinator.manager.recommender.estimate import Estimate, confidence, estimate
from koordinator.manager.recommender.options import EstimateOptions
from koordinator.manager.recommender.targets import NO_PODS_MATCHED
from koordinator.manager.recommender.tracked import Tracked

_INVALID_POLICY: Final = "InvalidPolicy"
_REWRITTEN_AFTER: Final = timedelta(minutes=10)
_MOVED: Final = 0.05
"""The part by which a target has to differ from the one that is written, to be written before its time."""
_DETAIL_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Writes:
    """The merge patches that are due; None if there is nothing to write."""

    status: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Container:
    name: str
    estimates: Mapping[str, Estimate]
    details: ContainerDetails

    @property
    def target(self) -> ResourceList:
        return {resource: _quantity(resource, each.target) for resource, each in self.estimates.items()}


def decide_writes(tracked: Tracked, options: EstimateOptions, now: datetime) -> Writes:
    """The recommendation is written when there is a first one, when a target moved by 5 %, when a condition changed,
    and at least every ten minutes while there are pods."""
    found = tracked.recommendation
    containers = _containers(tracked, options)
    conditions = _merged(found, _conditions(tracked, containers, options), now)
    are_changed = conditions != list(found.status.conditions)
    has_result = bool(containers) and bool(tracked.pods)
    if not are_changed and not (has_result and _is_due(found, containers, now)):
        return Writes()
    status: dict[str, Any] = {}
    if are_changed:
        status["conditions"] = to_document(conditions)
    if not has_result:
        # The last recommendation stays, with its time, by which readers see its age.
        return Writes({"status": status})
    status["updateTime"] = to_document(now)
    status["podStatus"] = {
        "containerStatuses": [
            {"containerName": each.name, "resources": to_document(each.target)} for each in containers
        ]
    }
    details = {each.name: to_document(each.details) for each in containers}
    return Writes({"status": status}, {"metadata": {"annotations": {DETAILS: encode(details).decode()}}})


def _containers(tracked: Tracked, options: EstimateOptions) -> Sequence[_Container]:
    """The containers with a recommendation, sorted by name."""
    found = []
    for name, model in sorted(tracked.models.items()):
        rules = tracked.rules.of(name)
        if rules.is_off or model.is_empty:
            continue
        estimates = estimate(model, rules, options, tracked.containers)
        if not estimates:
            continue
        history = model.history.moved(-tracked.time.offset)
        details = ContainerDetails(
            lower_bound=_amounts({each: one.lower for each, one in estimates.items()}),
            upper_bound=_amounts({each: one.upper for each, one in estimates.items()}),
            uncapped_target=_amounts({each: one.uncapped_target for each, one in estimates.items()}),
            confidence=round(confidence(history, options.confidence_interval), _DETAIL_DIGITS),
            samples=history.count,
            first_sample=history.first,
            last_sample=history.last,
        )
        found.append(_Container(name, estimates, details))
    return found


def _amounts(amounts: Mapping[str, int | None]) -> ResourceList:
    return {resource: _quantity(resource, amount) for resource, amount in amounts.items() if amount is not None}


def _quantity(resource: str, amount: int) -> Quantity:
    """Native units, also for pods that request batch or mid resources: admission translates requests for these."""
    return Quantity.from_milli(amount) if resource == CPU else Quantity.from_value(amount, Format.BINARY_SI)


def _conditions(tracked: Tracked, containers: Sequence[_Container], options: EstimateOptions) -> Sequence[Condition]:
    """The conditions that follow from the state; without times. The texts only change with the state."""
    problem = tracked.problem
    if problem is not None and problem.is_unsupported:
        return [_condition(CONFIG_UNSUPPORTED, True, problem.reason, problem.message)]
    found = [
        _condition(CONFIG_UNSUPPORTED, True, _INVALID_POLICY, tracked.policy_error)
        if tracked.policy_error
        else _condition(CONFIG_UNSUPPORTED, False, "ConfigSupported", "the target and the policy can be used")
    ]
    if problem is not None:
        found.append(_condition(NO_OBJECTS_MATCHED, True, problem.reason, problem.message))
    elif not tracked.pods:
        found.append(_condition(NO_OBJECTS_MATCHED, True, NO_PODS_MATCHED, "no pod of the target runs on a node"))
    else:
        found.append(_condition(NO_OBJECTS_MATCHED, False, "PodsMatched", "the target has pods"))
    if containers:
        interval = format_duration(options.confidence_interval)
        if min(each.details.confidence for each in containers) < 1:
            text = f"there is less than {interval} of samples for a container"
            found.append(_condition(LOW_CONFIDENCE, True, "InsufficientHistory", text))
        else:
            text = f"there is at least {interval} of samples for each container"
            found.append(_condition(LOW_CONFIDENCE, False, "EnoughHistory", text))
    if tracked.is_fetching_history:
        text = "the usage before the Recommendation was created is being read"
        found.append(_condition(FETCHING_HISTORY, True, "QueryRunning", text))
    elif any(each.type == FETCHING_HISTORY for each in tracked.recommendation.status.conditions):
        found.append(_condition(FETCHING_HISTORY, False, "Fetched", "no history is being read"))
    return found


def _condition(condition_type: str, holds: bool, reason: str, message: str) -> Condition:
    return Condition(type=condition_type, status="True" if holds else "False", reason=reason, message=message)


def _merged(found: Recommendation, decided: Sequence[Condition], now: datetime) -> list[Condition]:
    """The object's conditions with the decided ones in their places. The transition time changes with the status
    alone; conditions that are not decided stay as they are."""
    by_type = {each.type: each for each in found.status.conditions}
    for each in decided:
        before = by_type.get(each.type)
        since = now.replace(microsecond=0)
        if before is not None and before.status == each.status and before.last_transition_time is not None:
            since = before.last_transition_time
        by_type[each.type] = Condition(
            type=each.type,
            status=each.status,
            reason=each.reason,
            message=each.message,
            observed_generation=found.metadata.generation,
            last_transition_time=since,
        )
    return list(by_type.values())


def _is_due(found: Recommendation, containers: Sequence[_Container], now: datetime) -> bool:
    status = found.status
    if status.pod_status is None or status.update_time is None:
        return True
    written: Mapping[str, RecommendedContainerStatus] = {
        each.container_name: each for each in status.pod_status.container_statuses
    }
    # A time of the future is one that was written while the clock was ahead.
    if written.keys() != {each.name for each in containers} or abs(now - status.update_time) >= _REWRITTEN_AFTER:
        return True
    return any(_has_moved(written[each.name].resources, each.target) for each in containers)


def _has_moved(written: ResourceList, target: ResourceList) -> bool:
    if written.keys() != target.keys():
        return True
    return any(
        abs(quantity.nanos - written[resource].nanos) >= _MOVED * written[resource].nanos
        for resource, quantity in target.items()
        if quantity != written[resource]
    )
