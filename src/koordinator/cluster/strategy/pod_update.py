"""Which fields of a pod's spec may change after creation."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid

_RULE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_FREE: Final = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")


def check_pod_update(spec: Document, old: Document, other_causes: list[Cause]) -> list[Cause]:
    """The violations of an update; ``other_causes`` are those of the new spec on its own."""
    causes = list(other_causes)
    for group in ("containers", "initContainers"):
        if len(spec.get(group) or []) != len(old.get(group) or []):
            return [*causes, forbidden(f"spec.{group}", "pod updates may not add or remove containers")]
    causes += _check_deadline(spec.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    causes += _check_tolerations(spec.get("tolerations") or [], old.get("tolerations") or [])
    before = {gate.get("name") for gate in old.get("schedulingGates") or []}
    causes += [
        forbidden("spec.schedulingGates", f"only deletion is allowed, but found new scheduling gate '{gate['name']}'")
        for gate in spec.get("schedulingGates") or []
        if gate.get("name") not in before
    ]
    changed = _changed_fields(_frozen_part(spec, old), _frozen_part(old, old))
    if changed:
        causes.append(forbidden("spec", f"{_RULE}\n{changed}"))
    return causes


def _frozen_part(spec: Document, old: Document) -> Document:
    part = {name: value for name, value in spec.items() if name not in _FREE}
    grace, before = spec.get("terminationGracePeriodSeconds"), old.get("terminationGracePeriodSeconds") or 0
    if before >= 0:
        part["terminationGracePeriodSeconds"] = grace
    for group in ("containers", "initContainers"):
        if part.get(group):
            part[group] = [{k: v for k, v in container.items() if k != "image"} for container in part[group]]
    # A gated pod may still be narrowed to fewer nodes.
    if old.get("schedulingGates") and _narrows(spec, old):
        part = copy.deepcopy(part)
        part.pop("nodeSelector", None)
        if part.get("affinity"):
            part["affinity"].pop("nodeAffinity", None)
            if not part["affinity"]:
                part.pop("affinity")
    return part


def _narrows(spec: Document, old: Document) -> bool:
    selector, before = spec.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    return all(selector.get(key) == value for key, value in before.items())


def _check_deadline(value: Any, old: Any) -> list[Cause]:
    field = "spec.activeDeadlineSeconds"
    if old is None or value == old:
        return []
    if value is None:
        return [invalid(field, None, "must not update from a positive integer to nil value")]
    if value > old:
        return [invalid(field, value, "must be less than or equal to previous value")]
    return []


def _check_tolerations(tolerations: list[Document], old: list[Document]) -> list[Cause]:
    detail = "existing toleration can not be modified except its tolerationSeconds"
    without_seconds = [{k: v for k, v in t.items() if k != "tolerationSeconds"} for t in tolerations]
    for toleration in old:
        if {k: v for k, v in toleration.items() if k != "tolerationSeconds"} not in without_seconds:
            return [forbidden("spec.tolerations", detail)]
    return []


def _changed_fields(new: Any, old: Any, path: str = "spec") -> str:
    """One line for each field that differs, so that the reader need not compare two pods."""
    if isinstance(new, dict) and isinstance(old, dict):
        parts = [_changed_fields(new.get(key), old.get(key), f"{path}.{key}") for key in sorted({*new, *old})]
        return "".join(parts)
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return "".join(_changed_fields(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(new, old, strict=True)))
    if new == old:
        return ""
    return f"  {path}: {json.dumps(old)} -> {json.dumps(new)}\n"
