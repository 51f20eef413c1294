"""The changes that one profile makes to an object, in the order in which its fields are applied.

The cluster state that profiles depend on comes from memory: an admission never waits for the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.core import PriorityClass
from koordinator.api.document import Document
from koordinator.api.kinds import PRIORITY_CLASSES, Kind
from koordinator.base.errors import KoordinatorError
from koordinator.manager.webhook.colocation_profile.compiled import CompiledProfile
from koordinator.model.patch.errors import PatchError


class ProfileError(KoordinatorError):
    """A profile that matches an object cannot be applied to it; the object is refused."""


class UnknownObjectError(ProfileError):
    """The profile depends on an object that is not known, or not yet; it may be read."""

    def __init__(self, kind: Kind[Any], name: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.name = name


class ColocationCluster(Protocol):
    """The cluster state that profiles depend on, from memory."""

    def colocation_profiles(self) -> Iterable[ClusterColocationProfile]:
        """All profiles, in any order. A profile that has not changed is the same object as in the previous call."""
        ...

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """The labels of a namespace; None if it is not known (yet)."""
        ...

    def priority_class(self, name: str) -> PriorityClass | None: ...


def section(parent: Document, name: str) -> Document:
    """The object at ``name``, created where it is missing."""
    found = parent.get(name)
    if not isinstance(found, dict):
        found = parent[name] = {}
    return found


def apply_profile(
    profile: CompiledProfile, target: Document, pod_spec: Document | None, cluster: ColocationCluster
) -> None:
    """Apply all fields but the patch, changing ``target`` in place. ``pod_spec`` is the PodSpec within it, None without
    one. Raises ProfileError where the priority class does not exist."""
    _set_metadata(profile, section(target, "metadata"))
    if pod_spec is None:
        return
    if profile.spec.scheduler_name:
        pod_spec["schedulerName"] = profile.spec.scheduler_name
    if profile.spec.priority_class_name:
        _set_priority_class(profile, pod_spec, cluster)


def apply_patch(profile: CompiledProfile, target: Document) -> Document:
    """``target`` with the profile's patch, changed in place. Raises ProfileError where it does not fit."""
    if profile.apply_patch is None:
        return target
    try:
        return profile.apply_patch(target)
    except PatchError as error:
        raise ProfileError(f'ClusterColocationProfile "{profile.name}": spec.patch does not fit: {error}') from error


def _set_metadata(profile: CompiledProfile, metadata: Document) -> None:
    spec = profile.spec
    if spec.labels:
        section(metadata, "labels").update(spec.labels)
    if spec.annotations:
        section(metadata, "annotations").update(spec.annotations)
    if spec.label_keys_mapping:
        _copy_values(section(metadata, "labels"), spec.label_keys_mapping)
    if spec.annotation_keys_mapping:
        _copy_values(section(metadata, "annotations"), spec.annotation_keys_mapping)
    if spec.label_suffixes:
        own = metadata.get("labels") or {}
        own.update({key: own[key] + suffix for key, suffix in spec.label_suffixes.items() if key in own})
    if profile.last_labels:
        section(metadata, "labels").update(profile.last_labels)


def _copy_values(texts: Document, mapping: Mapping[str, str]) -> None:
    """Copy values to other keys. All are read before any is written, so that the order of a chain of keys does not
    matter."""
    texts.update({new: texts.get(old, "") for old, new in sorted(mapping.items())})


def _set_priority_class(profile: CompiledProfile, pod_spec: Document, cluster: ColocationCluster) -> None:
    name = profile.spec.priority_class_name
    found = cluster.priority_class(name)
    if found is None:
        raise UnknownObjectError(
            PRIORITY_CLASSES,
            name,
            f'PriorityClass.scheduling.k8s.io "{name}" not found, which spec.priorityClassName of the '
            f'ClusterColocationProfile "{profile.name}" asks for',
        )
    pod_spec["priorityClassName"] = name
    pod_spec["priority"] = found.value
    if found.preemption_policy is None:
        pod_spec.pop("preemptionPolicy", None)
    else:
        pod_spec["preemptionPolicy"] = found.preemption_policy
