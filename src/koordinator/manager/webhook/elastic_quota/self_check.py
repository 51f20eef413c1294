"""What must hold within one quota, whatever stands around it."""

from __future__ import annotations

from koordinator.api.annotations import QUOTA_MAX_STRICT_CHECK_RESOURCE_KEYS, QUOTA_SHARED_WEIGHT
from koordinator.api.codec import DecodeError
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.manager.webhook.elastic_quota.refusal import QuotaRefused
from koordinator.model.quota_tree.amounts import negative
from koordinator.model.quota_tree.annotation_values import read_amounts, read_names


def check_itself(quota: ElasticQuota) -> None:
    """Raises QuotaRefused for the first rule that is broken; resources are gone through by name."""
    _check_no_negative(quota)
    _check_shared_weight(quota)
    _check_min_within_max(quota)
    _check_used_within_max(quota)


def _check_no_negative(quota: ElasticQuota) -> None:
    for field, resources in (("Max", quota.spec.max), ("Min", quota.spec.min)):
        if names := negative(resources):
            raise QuotaRefused(f"{quota.metadata.name} quota.Spec.{field}'s value < 0, in dimensions :{_listed(names)}")


def _check_shared_weight(quota: ElasticQuota) -> None:
    where = f"{quota.metadata.name} quota.Annotation[{QUOTA_SHARED_WEIGHT}]'s value"
    try:
        weights = read_amounts(quota.metadata.annotations.get(QUOTA_SHARED_WEIGHT, ""))
    except DecodeError as error:
        raise QuotaRefused(f"{where} is invalid: {error}") from error
    if names := negative(weights):
        raise QuotaRefused(f"{where} < 0, in dimension :{_listed(names)}")


def _check_min_within_max(quota: ElasticQuota) -> None:
    name = quota.metadata.name
    for resource, least in sorted(quota.spec.min.items()):
        most = quota.spec.max.get(resource)
        if most is None:
            raise QuotaRefused(
                f"resourceKey {resource} of quota {name} is included in min, which is not included in max"
            )
        if most < least:
            raise QuotaRefused(f"resourceKey {resource} of quota {name} min {least} > max {most}")


def _check_used_within_max(quota: ElasticQuota) -> None:
    name = quota.metadata.name
    for resource in _strict_resources(quota):
        used, most = quota.status.used.get(resource), quota.spec.max.get(resource)
        if used is None:
            continue
        if most is None:
            raise QuotaRefused(
                f"resourceKey {resource} of quota {name} is included in used, "
                "which is not included in max but should check max >= used"
            )
        if most < used:
            raise QuotaRefused(f"resourceKey {resource} of quota {name} max {most} < used {used}")


def _strict_resources(quota: ElasticQuota) -> list[str]:
    try:
        return read_names(quota.metadata.annotations.get(QUOTA_MAX_STRICT_CHECK_RESOURCE_KEYS, ""))
    except DecodeError as error:
        raise QuotaRefused(
            f"{quota.metadata.name} quota.Annotation[{QUOTA_MAX_STRICT_CHECK_RESOURCE_KEYS}]'s value "
            f"is invalid: {error}"
        ) from error


def _listed(names: list[str]) -> str:
    return f"[{' '.join(names)}]"
