"""Checks that a schema cannot express: texts with a grammar, and fields that depend on one another.

An API server lets these through, so that the object is stored and the program that acts on it has to report the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from koordinator.api import pod_migration_job, recommendation
from koordinator.api.colocation_profile import ClusterColocationProfileSpec
from koordinator.api.elastic_quota_profile import ElasticQuotaProfileSpec
from koordinator.api.field_error import FieldError, child_path
from koordinator.api.meta import LabelSelectorRequirement
from koordinator.api.pod_migration_job import PodMigrationJobSpec
from koordinator.api.quantity import Quantity, QuantityError
from koordinator.api.recommendation import RecommendationTarget
from koordinator.api.resource_qos import NetworkQoSConfig

_WITH_VALUES: Final = ("In", "NotIn")
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")


def _selector_requirement(requirement: LabelSelectorRequirement, path: str) -> Iterator[FieldError]:
    if requirement.operator in _WITH_VALUES and not requirement.values:
        yield FieldError.required(child_path(path, "values"), "must be specified when `operator` is 'In' or 'NotIn'")
    elif requirement.operator in _WITHOUT_VALUES and requirement.values:
        yield FieldError.forbidden(
            child_path(path, "values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        )
    elif requirement.operator and requirement.operator not in (*_WITH_VALUES, *_WITHOUT_VALUES):
        yield FieldError.not_supported(
            child_path(path, "operator"), requirement.operator, (*_WITH_VALUES, *_WITHOUT_VALUES)
        )


def _colocation_profile(spec: ClusterColocationProfileSpec, path: str) -> Iterator[FieldError]:
    probability = spec.probability
    if isinstance(probability, str) and not (probability.endswith("%") and probability[:-1].isdecimal()):
        yield FieldError.invalid(
            child_path(path, "probability"), probability, "must be a number or a percentage such as 30%"
        )


def _elastic_quota_profile(spec: ElasticQuotaProfileSpec, path: str) -> Iterator[FieldError]:
    if spec.resource_ratio is not None and not _is_ratio(spec.resource_ratio):
        allowed = "must be a number of 0 or greater such as 0.9"
        yield FieldError.invalid(child_path(path, "resourceRatio"), spec.resource_ratio, allowed)


def _is_ratio(text: str) -> bool:
    try:
        ratio = float(text)
    except ValueError:
        return False
    return math.isfinite(ratio) and ratio >= 0


def _migration_job(spec: PodMigrationJobSpec, path: str) -> Iterator[FieldError]:
    modes = (pod_migration_job.RESERVATION_FIRST, pod_migration_job.EVICT_DIRECTLY)
    if spec.mode and spec.mode not in modes:
        yield FieldError.not_supported(child_path(path, "mode"), spec.mode, modes)


def _recommendation_target(target: RecommendationTarget, path: str) -> Iterator[FieldError]:
    types = (recommendation.WORKLOAD, recommendation.POD_SELECTOR)
    if target.type and target.type not in types:
        yield FieldError.not_supported(child_path(path, "type"), target.type, types)
    elif target.type == recommendation.WORKLOAD and target.workload is None:
        yield FieldError.required(child_path(path, "workload"), "must be specified when `type` is 'workload'")
    elif target.type == recommendation.POD_SELECTOR and target.pod_selector is None:
        yield FieldError.required(child_path(path, "podSelector"), "must be specified when `type` is 'podSelector'")


def _network_qos(config: NetworkQoSConfig, path: str) -> Iterator[FieldError]:
    values = {
        "ingressRequest": config.ingress_request,
        "ingressLimit": config.ingress_limit,
        "egressRequest": config.egress_request,
        "egressLimit": config.egress_limit,
    }
    for name, value in values.items():
        if value is not None and not _is_bandwidth(value):
            yield FieldError.invalid(
                child_path(path, name), value, "must be a percentage from 0 to 100 or a quantity text"
            )


def _is_bandwidth(value: int | str) -> bool:
    if isinstance(value, int):
        return 0 <= value <= 100
    try:
        return Quantity.parse(value).nanos >= 0
    except QuantityError:
        return False


SEMANTIC_CHECKS: Final[Mapping[type, Callable[[Any, str], Iterator[FieldError]]]] = {
    LabelSelectorRequirement: _selector_requirement,
    ClusterColocationProfileSpec: _colocation_profile,
    ElasticQuotaProfileSpec: _elastic_quota_profile,
    PodMigrationJobSpec: _migration_job,
    RecommendationTarget: _recommendation_target,
    NetworkQoSConfig: _network_qos,
}
"""Struct type -> its check, given the struct and its path."""
