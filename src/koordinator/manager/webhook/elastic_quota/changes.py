"""Whether a quota may be created, updated or deleted: first the quota by itself, then the quota tree."""

from __future__ import annotations

from typing import Final, Protocol

from koordinator.api.annotations import QUOTA_MAX_STRICT_CHECK_RESOURCE_KEYS, QUOTA_NAMESPACES, QUOTA_SHARED_WEIGHT
from koordinator.api.codec import DecodeError
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.labels import QUOTA_IS_PARENT, QUOTA_PARENT, QUOTA_TREE_ID
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache
from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused, QuotaSettings
from koordinator.manager.webhook.elastic_quota.topology import Change, check_topology
from koordinator.model.quota_tree.amounts import negative
from koordinator.model.quota_tree.annotation_values import read_amounts, read_names
from koordinator.model.quota_tree.pod_quota import namespace_quota
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree

_FIXED: Final = frozenset({SYSTEM_QUOTA, ROOT_QUOTA})
_KEPT: Final = _FIXED | {DEFAULT_QUOTA}
_TREE_LABELS: Final = (QUOTA_PARENT, QUOTA_IS_PARENT, QUOTA_TREE_ID)
_NAMED_PODS: Final = 2


def check_itself(quota: ElasticQuota) -> None:
    """Raises QuotaRefused for the first violated rule; resources are checked in the order of their names."""
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


class QuotaPods(Protocol):
    """The pods of quotas, from memory."""

    def labelled(self, quota: str) -> list[str]:
        """The names of the pods that are labelled with the quota, sorted."""
        ...

    def unlabelled_in(self, namespace: str) -> list[str]:
        """The names of the pods of a namespace that are labelled with no quota, sorted."""
        ...

    def any_in(self, namespace: str) -> bool: ...


class QuotaChanges:
    """Checks changes against the assumed quotas; methods raise QuotaRefused and modify nothing."""

    def __init__(self, quotas: QuotaAssumeCache, pods: QuotaPods, settings: QuotaSettings) -> None:
        self._quotas = quotas
        self._pods = pods
        self._settings = settings

    def check_creation(self, wire: ElasticQuota) -> None:
        tree, new = self._quotas.tree(), Quota.of(wire)
        known = tree.get(new.name)
        # A quota that was admitted but not stored may be created again.
        if known is not None and (known.key != new.key or self._quotas.is_stored(new.key)):
            raise QuotaRefused(f"AddQuota quota already exist:{new.name}")
        for namespace in new.namespaces:
            if bound := _bound_elsewhere(tree, namespace, new.name):
                raise QuotaRefused(
                    f"AddQuota quota {new.name}'s annotation namespace {namespace} is already bound to quota {bound}"
                )
        check_itself(wire)
        self._check_topology(Change(tree, new, None), ())

    def check_update(self, wire: ElasticQuota, old: ElasticQuota) -> None:
        tree, new = self._quotas.tree(), Quota.of(wire)
        if new.name in _FIXED:
            raise QuotaRefused(f"invalid quota {new.name}")
        for namespace in new.namespaces:
            if bound := _bound_elsewhere(tree, namespace, new.name):
                raise QuotaRefused(
                    f"UpdadteQuota, quota {new.name} update namespaces, "
                    f"but namespace {namespace} is already bound to quota {bound}"
                )
        known = tree.get(new.name)
        if known is None:
            raise QuotaRefused(f"UpdateQuota quota not exist in quotaInfoMap:{new.name}")
        check_itself(wire)
        self._check_topology(Change(tree, new, known), Quota.of(old).namespaces)

    def check_deletion(self, wire: ElasticQuota) -> None:
        tree, name = self._quotas.tree(), wire.metadata.name
        if name in _KEPT:
            raise QuotaRefused(f"can not delete quotaGroup :{name}")
        known = tree.get(name)
        if known is None:
            raise QuotaRefused(f"not found quota:{name}")
        if known.key != wire.metadata.key and tree.object(wire.metadata.key) is not None:
            # Another quota of this name is in force; nothing depends on this one.
            return
        if children := tree.child_count(name):
            raise QuotaRefused(f"delete quota failed, quota {name} has {children} child quotas")
        if pods := self._counted_pods(tree, known):
            shown = ", ".join(pods[:_NAMED_PODS]) + (", ..." if len(pods) > _NAMED_PODS else "")
            raise QuotaRefused(f"delete quota failed, quota {name} has {len(pods)} child pods: {shown}")

    def _check_topology(self, change: Change, old_namespaces: tuple[str, ...]) -> None:
        def has_pods() -> bool:
            name = change.new.name
            return bool(self._pods.labelled(name)) or any(
                self._pods.any_in(namespace) for namespace in (name, *old_namespaces)
            )

        check_topology(change, has_pods, self._settings)

    def _counted_pods(self, tree: QuotaTree, quota: Quota) -> list[str]:
        """The pods that count against the quota, by their label or by their namespace."""
        names = self._pods.labelled(quota.name)
        if self._settings.by_namespace:
            namespaces = dict.fromkeys((quota.name, *quota.namespaces))
            for namespace in namespaces:
                if namespace_quota(namespace, tree) == quota.name:
                    names += self._pods.unlabelled_in(namespace)
        return names


def is_changed(new: ElasticQuota, old: ElasticQuota) -> bool:
    """Whether an update changes any field that the checks read."""
    return new.spec != old.spec or _tree_fields(new) != _tree_fields(old)


def _tree_fields(quota: ElasticQuota) -> tuple[str, ...]:
    labels = quota.metadata.labels
    return (*(labels.get(label, "") for label in _TREE_LABELS), quota.metadata.annotations.get(QUOTA_NAMESPACES, ""))


def _bound_elsewhere(tree: QuotaTree, namespace: str, name: str) -> str:
    """The name of another quota that the namespace is bound to; empty without one."""
    claimant = tree.claimant(namespace)
    return claimant.name if claimant is not None and claimant.name != name else ""
