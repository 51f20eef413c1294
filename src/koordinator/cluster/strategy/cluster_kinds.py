"""Small kinds around the workloads: namespaces, policies, roles, volumes, PodDisruptionBudgets."""

from __future__ import annotations

import re
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.names import dns_label, path_segment
from koordinator.api.timestamps import format_time
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy import tables
from koordinator.cluster.strategy.causes import invalid, not_supported
from koordinator.cluster.strategy.metadata import check_finalizer, validate_label_selector
from koordinator.cluster.strategy.object_strategy import ObjectStrategy, default_each, defaults_of
from koordinator.cluster.strategy.pod import round_up_resources
from koordinator.cluster.strategy.storage_rules import volume
from koordinator.cluster.strategy.table import Table

_CORE: Final = "io.k8s.api.core.v1."
_RBAC: Final = "io.k8s.api.rbac.v1."
_NETWORKING: Final = "io.k8s.api.networking.v1."
NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
RBAC_GROUP: Final = "rbac.authorization.k8s.io"


@defaults_of(f"{_CORE}Namespace")
def _namespace(namespace: Document) -> None:
    default_each(namespace["status"], "phase", "Active")
    if name := namespace["metadata"].get("name"):
        namespace["metadata"].setdefault("labels", {})[NAMESPACE_LABEL] = name


@defaults_of(f"{_CORE}EndpointPort")
def _endpoint_port(port: Document) -> None:
    default_each(port, "protocol", "TCP")


@defaults_of("io.k8s.api.discovery.v1.EndpointPort")
def _slice_port(port: Document) -> None:
    port.setdefault("name", "")
    port.setdefault("protocol", "TCP")


@defaults_of(f"{_CORE}LimitRangeItem")
def _limit_range_item(item: Document) -> None:
    if item.get("type") != "Container":
        return
    limits = {**(item.get("max") or {}), **(item.get("default") or {})}
    requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
    for name, amounts in (("default", limits), ("defaultRequest", requests)):
        if amounts:
            item[name] = amounts


@defaults_of(f"{_NETWORKING}NetworkPolicySpec")
def _network_policy(spec: Document) -> None:
    default_each(spec, "policyTypes", ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])


@defaults_of(f"{_NETWORKING}NetworkPolicyPort")
def _network_policy_port(port: Document) -> None:
    port.setdefault("protocol", "TCP")


@defaults_of(f"{_RBAC}RoleRef")
def _role_reference(reference: Document) -> None:
    default_each(reference, "apiGroup", RBAC_GROUP)


@defaults_of(f"{_RBAC}Subject")
def _subject(subject: Document) -> None:
    if subject.get("kind") in ("User", "Group"):
        default_each(subject, "apiGroup", RBAC_GROUP)


class NamespaceStrategy(ObjectStrategy):
    """Namespaces hold themselves until they are empty: ``spec.finalizers`` goes last."""

    def __init__(self, table: Table) -> None:
        labels = {"status.phase": lambda obj: obj["status"].get("phase") or ""}
        super().__init__(
            "v1", "Namespace", namespaced=False, name_check=dns_label, table=table, status=True, field_labels=labels
        )

    def initialize(self, obj: Document, context: RequestContext) -> None:
        obj["spec"]["finalizers"] = ["kubernetes"]

    def carry_over(self, obj: Document, old: Document, context: RequestContext) -> None:
        obj["spec"]["finalizers"] = list(old["spec"].get("finalizers") or [])
        if not obj["spec"]["finalizers"]:
            del obj["spec"]["finalizers"]

    def finalize(self, obj: Document, old: Document, context: RequestContext) -> None:
        """Takes over ``spec.finalizers``, too, which is all that the spec has."""
        self.prepare_update(obj, {**old, "spec": obj["spec"]}, context)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        causes: list[Cause] = []
        for index, finalizer in enumerate(obj["spec"].get("finalizers") or []):
            causes += check_finalizer(f"spec.finalizers[{index}]", finalizer)
        return causes


# Volumes, claims and storage classes.


_STORAGE: Final = "io.k8s.api.storage.v1."


@defaults_of("io.k8s.api.core.v1.PersistentVolume")
def _volume(volume: Document) -> None:
    spec = volume["spec"]
    default_each(volume["status"], "phase", "Pending")
    default_each(spec, "persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    if isinstance(spec.get("hostPath"), dict):
        spec["hostPath"].setdefault("type", "")
    round_up_resources(spec.get("capacity"))


@defaults_of(f"{_STORAGE}StorageClass")
def _storage_class(obj: Document) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


@defaults_of(f"{_STORAGE}CSIDriverSpec")
def _csi_driver(spec: Document) -> None:
    spec.setdefault("attachRequired", True)
    for name in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
        spec.setdefault(name, False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    default_each(spec, "volumeLifecycleModes", ["Persistent"])


@defaults_of("io.k8s.api.resource.v1.ExactDeviceRequest")
def _device_request(request: Document) -> None:
    default_each(request, "allocationMode", "ExactCount")
    if request["allocationMode"] == "ExactCount":
        default_each(request, "count", 1)


_RECYCLE_IS_DEPRECATED: Final = (
    "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
    "Instead, the recommended approach is to use dynamic provisioning."
)


class VolumeStrategy(ObjectStrategy):
    """PersistentVolumes note when their phase last changed.

    The protection finalizer is left to the controller that takes it away again: without one, no volume would go.
    """

    def __init__(self, table: Table) -> None:
        super().__init__("v1", "PersistentVolume", namespaced=False, table=table, status=True, check=volume)

    def initialize(self, obj: Document, context: RequestContext) -> None:
        if obj["spec"].get("persistentVolumeReclaimPolicy") == "Recycle":
            context.warnings.append(_RECYCLE_IS_DEPRECATED)
        obj["status"]["lastPhaseTransitionTime"] = format_time(context.now)


# PodDisruptionBudgets: how many pods may be missing, as a number or as a share, but not both ways at once.


_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")
_COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_NOT_NEGATIVE: Final = "must be greater than or equal to 0"
_PERCENT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


class DisruptionBudgetStrategy(ObjectStrategy):
    def __init__(self) -> None:
        table = tables.POD_DISRUPTION_BUDGET
        super().__init__(
            "policy/v1", "PodDisruptionBudget", table=table, generation=True, status=True, name_check=path_segment
        )

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        spec = obj["spec"]
        limits = [name for name in ("minAvailable", "maxUnavailable") if spec.get(name) is not None]
        causes = [_both_set(spec)] if len(limits) == 2 else []
        for name in limits:
            causes += _check_amount(spec[name], f"spec.{name}")
        kept = old is not None and bool(validate_label_selector(old["spec"].get("selector") or {}, ""))
        causes += validate_label_selector(spec.get("selector") or {}, "spec.selector", any_value=kept)
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy is not None and policy not in _POLICIES:
            causes.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
        return causes

    def validate_status(self, obj: Document, old: Document) -> list[Cause]:
        status = obj["status"]
        return [
            invalid(f"status.{name}", status[name], _NOT_NEGATIVE) for name in _COUNTS if (status.get(name) or 0) < 0
        ]


def _both_set(spec: Document) -> Cause:
    # The real server shows its own Go struct here.
    names = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")
    shown = {name[0].upper() + name[1:]: spec.get(name) for name in names}
    return invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set")


def _check_amount(amount: Any, field: str) -> list[Cause]:
    if isinstance(amount, int):
        return [] if amount >= 0 else [invalid(field, amount, _NOT_NEGATIVE)]
    if not re.fullmatch("[0-9]+%", amount):
        return [invalid(field, amount, _PERCENT)]
    return [] if int(amount[:-1]) <= 100 else [invalid(field, amount, "must not be greater than 100%")]
