"""What all kinds share in ``metadata``: rules for names, labels, annotations and owners, and what never changes."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.canonical import WrongType, canonicalize
from koordinator.api.kubernetes_types.table import named
from koordinator.api.kubernetes_types.unknown_fields import Unknown, find_unknown
from koordinator.api.names import NameCheck, dns_label, label_key, label_value
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid, required, too_long

_ANNOTATIONS_LIMIT: Final = 256 * 1024
_MANAGER_LIMITS: Final = {"manager": 128, "subresource": 256}
"""Bytes."""
_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")
_IMMUTABLE: Final = "field is immutable"
_REPEATED_OWNERS: Final = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
)
_ONCE_SET: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


_KEPT_BY_STATUS: Final = {
    ("v1", "Pod"): ("spec", "metadata.deletionTimestamp", "metadata.ownerReferences"),
    ("apps/v1", "Deployment"): ("spec", "metadata.labels"),
    ("storage.k8s.io/v1", "VolumeAttachment"): ("spec", "metadata"),
    ("resource.k8s.io/v1", "ResourceClaim"): ("spec", "metadata"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): ("spec", "metadata"),
}


def kept_by_status(api_version: str, kind: str) -> tuple[str, ...]:
    """The fields that a write through the status subresource leaves as they are, whatever it sends: hence it does not
    manage them either."""
    return _KEPT_BY_STATUS.get((api_version, kind), ("spec",))


def validate_metadata(obj: Document, old: Document | None, namespaced: bool, name_check: NameCheck) -> list[Cause]:
    """Everything that is wrong in ``metadata``."""
    metadata: Document = obj.get("metadata") or {}
    causes = _validate_name(metadata, namespaced, name_check) if old is None else []
    if labels := metadata.get("labels"):
        causes += validate_labels(labels, "metadata.labels")
    if annotations := metadata.get("annotations"):
        causes += validate_annotations(annotations, "metadata.annotations")
    if owners := metadata.get("ownerReferences"):
        causes += _validate_owners(owners)
    if finalizers := metadata.get("finalizers"):
        causes += _validate_finalizers(finalizers)
    if managers := metadata.get("managedFields"):
        causes += _validate_managers(managers)
    return causes + (_validate_unchanged(metadata, old.get("metadata") or {}) if old is not None else [])


def _validate_managers(entries: list[Document]) -> list[Cause]:
    causes: list[Cause] = []
    for index, entry in enumerate(entries):
        for name, limit in _MANAGER_LIMITS.items():
            if len((entry.get(name) or "").encode()) > limit:
                causes.append(too_long(f"metadata.managedFields[{index}].{name}", limit))
    return causes


def _validate_finalizers(finalizers: list[str]) -> list[Cause]:
    causes = [
        invalid("metadata.finalizers", finalizer, detail) for finalizer in finalizers for detail in label_key(finalizer)
    ]
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        causes.append(
            invalid("metadata.finalizers", finalizers, "finalizer orphan and foregroundDeletion cannot be both set")
        )
    return causes


def validate_core_finalizers(obj: Document) -> list[Cause]:
    """Built-in kinds require a prefix, so that the owner of a finalizer is known."""
    finalizers = (obj.get("metadata") or {}).get("finalizers") or []
    return [c for index, each in enumerate(finalizers) for c in _check_owner(f"metadata.finalizers[{index}]", each)]


def check_finalizer(field: str, finalizer: str) -> list[Cause]:
    """Of a namespace's spec."""
    return [invalid(field, finalizer, detail) for detail in label_key(finalizer)] + _check_owner(field, finalizer)


def _check_owner(field: str, finalizer: str) -> list[Cause]:
    if "/" in finalizer or finalizer in _STANDARD_FINALIZERS:
        return []
    return [invalid(field, finalizer, "name is neither a standard finalizer name nor is it fully qualified")]


def finalizer_warnings(metadata: Document, known: list[str]) -> list[str]:
    """Custom resources may have finalizers without a known owner; adding one gets a warning."""
    warnings = []
    for finalizer in sorted(set(metadata.get("finalizers") or []) - set(known)):
        shown = f'metadata.finalizers: "{finalizer}"'
        warnings += [f"{shown}: {detail}" for detail in label_key(finalizer)]
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            form = "finalizer name including a path (/)" if "." in finalizer else "finalizer name"
            why = f"prefer a domain-qualified {form} to avoid accidental conflicts with other finalizer writers"
            warnings.append(f"{shown}: {why}")
    return warnings


def take_over(obj: Document, old: Document, name: str) -> None:
    """What an update may not change, and has perhaps left out."""
    if name not in old:
        obj.pop(name, None)
    elif obj.get(name) is not old[name]:
        obj[name] = copied(old[name])


def keep_system_metadata(obj: Document, old: Document) -> None:
    """Carry over what the server alone writes, so that a client that leaves it out does not lose it."""
    metadata: Document = obj.setdefault("metadata", {})
    before: Document = old.get("metadata") or {}
    for name in ("uid", "creationTimestamp"):
        if not metadata.get(name) and name in before:
            metadata[name] = before[name]
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"):
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)


def drop_repeated_owners(obj: Document, warnings: list[str]) -> None:
    """Of references that are there twice one stays."""
    owners = obj["metadata"].get("ownerReferences") or ()
    if len(owners) < 2:
        return
    kept: list[Document] = []
    repeated: list[str] = []
    for owner in owners:
        if owner in kept:
            repeated.append(owner.get("uid") or "")
        else:
            kept.append(owner)
    if repeated:
        obj["metadata"]["ownerReferences"] = kept
        warnings.append(f"{_REPEATED_OWNERS}{', '.join(repeated)}")


def validate_labels(labels: Any, field: str) -> list[Cause]:
    causes = []
    for key, value in (labels or {}).items():
        causes += [invalid(field, key, detail) for detail in label_key(key)]
        causes += [invalid(field, value, detail) for detail in label_value(value)]
    return causes


def _validate_name(metadata: Document, namespaced: bool, name_check: NameCheck) -> list[Cause]:
    causes = []
    if generate := metadata.get("generateName"):
        # The random ending makes a trailing dash good.
        checked = f"{generate[:-1]}a" if generate.endswith("-") else generate
        causes += [invalid("metadata.generateName", generate, detail) for detail in name_check(checked)]
    name = metadata.get("name")
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    else:
        causes += [invalid("metadata.name", name, detail) for detail in name_check(name)]
    namespace = metadata.get("namespace")
    if not namespaced:
        return [*causes, forbidden("metadata.namespace", "not allowed on this type")] if namespace else causes
    if not namespace:
        return [*causes, required("metadata.namespace")]
    return causes + [invalid("metadata.namespace", namespace, detail) for detail in dns_label(namespace)]


def validate_annotations(annotations: Document, field: str) -> list[Cause]:
    causes = [invalid(field, key, detail) for key in annotations for detail in label_key(key.lower())]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        causes.append(too_long(field, _ANNOTATIONS_LIMIT))
    return causes


def _validate_owners(owners: list[Document]) -> list[Cause]:
    causes: list[Cause] = []
    controllers: list[str] = []
    field = "metadata.ownerReferences"
    for owner in owners:
        if not (owner.get("apiVersion") or "").rpartition("/")[2]:
            causes.append(invalid(f"{field}.apiVersion", owner.get("apiVersion") or "", "version must not be empty"))
        empty = [name for name in ("kind", "name", "uid") if not owner.get(name)]
        causes += [invalid(f"{field}.{name}", "", "must not be empty") for name in empty]
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            causes.append(invalid(field, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        detail = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {controllers[1]}"
        )
        causes.append(invalid(field, owners, detail))
    return causes


def _validate_unchanged(metadata: Document, before: Document) -> list[Cause]:
    causes = [
        invalid(f"metadata.{name}", metadata.get(name), _IMMUTABLE)
        for name in ("name", "namespace", *_ONCE_SET)
        if metadata.get(name) != before.get(name)
    ]
    added = sorted(set(metadata.get("finalizers") or []) - set(before.get("finalizers") or []))
    if before.get("deletionTimestamp") and added:
        listed = ", ".join(f'"{name}"' for name in added)
        detail = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
        )
        causes.append(forbidden("metadata.finalizers", detail))
    return causes


# The rules for a ``metav1.LabelSelector`` field, in the real server's words.


def validate_label_selector(selector: Document, field: str, *, any_value: bool = False) -> list[Cause]:
    """``any_value`` lets through label values that can never match, for objects that were stored with them."""
    causes = validate_labels(selector.get("matchLabels"), f"{field}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or []):
        causes += _requirement(requirement, f"{field}.matchExpressions[{index}]", any_value=any_value)
    return causes


def _requirement(requirement: Document, field: str, *, any_value: bool) -> list[Cause]:
    operator, values = requirement.get("operator"), requirement.get("values") or []
    causes = _operator(operator, values, field)
    key: str = requirement.get("key") or ""
    causes += [invalid(f"{field}.key", key, detail) for detail in label_key(key)]
    if not any_value:
        causes += [
            invalid(f"{field}.values[{index}]", value, detail)
            for index, value in enumerate(values)
            for detail in label_value(value)
        ]
    return causes


def _operator(operator: Any, values: list[str], field: str) -> list[Cause]:
    if operator in ("In", "NotIn"):
        detail = "must be specified when `operator` is 'In' or 'NotIn'"
        return [] if values else [required(f"{field}.values", detail)]
    if operator in ("Exists", "DoesNotExist"):
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [forbidden(f"{field}.values", detail)] if values else []
    return [invalid(f"{field}.operator", operator, "not a valid selector operator")]


# Metadata of custom resources, and of whole objects inside of them: no type of their own makes it what it has to be.


class MalformedMetadata(WrongType):
    """Metadata, or a kind, of another type than an object can have; the text names the field and says why."""


_METADATA: Final = named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")


def unknown_in_metadata(obj: Document, path: str) -> list[Unknown]:
    """The fields of ``metadata`` that no object has."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return []
    return find_unknown(metadata, _METADATA, f"{path}.metadata" if path else "metadata")


def coerce_metadata(obj: Document) -> None:
    """Null becomes absent, empty things disappear, what no object has is dropped. Raises MalformedMetadata."""
    metadata = obj["metadata"]
    if not isinstance(metadata, dict):
        if metadata is not None:
            kind = {str: "string", bool: "bool", list: "array"}.get(type(metadata), "number")
            raise MalformedMetadata(f"json: cannot unmarshal {kind} into Go value of type v1.ObjectMeta")
        obj["metadata"] = {}
        return
    for unknown in unknown_in_metadata(obj, ""):
        unknown.holder.pop(unknown.name, None)
    try:
        canonicalize(metadata, _METADATA)
    except WrongType as error:
        raise MalformedMetadata(str(error)) from error
    if metadata.get("creationTimestamp", "") is None:
        del metadata["creationTimestamp"]
