"""Which existing pods a profile applies to, and how it changes them.

A profile changes an existing pod as it would have at creation, except for fields that are immutable by now or that
would be translated twice: scheduler name, priority class and resources stay. A profile may be applied to a pod many
times, and only the first time may make a difference:

- A label suffix that is present already is not added again, unless the profile sets the label's value anew each time.
- A value is copied to another key as long as it is the pod's own. A value that the profile replaces afterwards, or that
  no longer exists, is copied only to a key that does not exist yet.
- Whether ``probability`` selects a pod depends on the pod's uid and the profile's name, not on the time of the call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from typing import Any, Final

from koordinator.api import labels as label_keys
from koordinator.api.colocation_profile import ClusterColocationProfile, ClusterColocationProfileSpec
from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.table import named
from koordinator.manager.webhook.colocation_profile.changes import apply_patch
from koordinator.manager.webhook.colocation_profile.compiled import ALWAYS, CompiledProfile, compile_profile

_POD: Final = "io.k8s.api.core.v1.Pod"
_TEXTS: Final = frozenset({"labels", "annotations"})
_MANAGED: Final = "true"


def is_managed(profile: ClusterColocationProfile, by_default: bool) -> bool:
    """Whether the controller applies the profile to existing pods."""
    metadata = profile.metadata
    if metadata.deletion_timestamp is not None:
        return False
    return by_default or metadata.labels.get(label_keys.CONTROLLER_MANAGED) == _MANAGED


def compile_for_pods(profile: ClusterColocationProfile) -> CompiledProfile:
    return compile_profile(profile, named(_POD))


def is_for(profile: CompiledProfile, labels: Mapping[str, str], namespace_labels: Mapping[str, str] | None) -> bool:
    """Whether the profile selects a pod. ``namespace_labels`` is None for an unknown namespace. Without a selector a
    profile selects no existing pod, although it selects every new one."""
    if profile.spec.selector is None or not profile.objects.matches(labels):
        return False
    if profile.namespaces.empty:
        return True
    return namespace_labels is not None and profile.namespaces.matches(namespace_labels)


def is_drawn(profile: CompiledProfile, uid: str) -> bool:
    """Whether the profile's ``probability`` selects the pod."""
    if profile.percent >= ALWAYS:
        return True
    digest = hashlib.sha256(f"{profile.name}/{uid}".encode()).digest()
    return int.from_bytes(digest[:8]) % ALWAYS < profile.percent


def reads_whole_pod(profile: CompiledProfile) -> bool:
    """Whether the profile's patch reads or writes more of a pod than its labels and annotations."""
    patch = profile.patch
    if not patch:
        return False
    metadata = patch.get("metadata")
    return patch.keys() != {"metadata"} or not isinstance(metadata, dict) or not metadata.keys() <= _TEXTS


def changed_pod(profile: CompiledProfile, pod: Document) -> Document:
    """A copy of the pod with the profile applied. Raises ProfileError where the profile's patch does not fit."""
    spec = profile.spec
    changed: Document = copied(pod)
    metadata = changed.setdefault("metadata", {})
    labels = _labels(spec, metadata.get("labels") or {}, _patched_keys(profile, "labels"))
    annotations, _ = _copied_values(
        {**(metadata.get("annotations") or {}), **spec.annotations},
        spec.annotations,
        spec.annotation_keys_mapping,
        _patched_keys(profile, "annotations"),
    )
    metadata.update({name: texts for name, texts in (("labels", labels), ("annotations", annotations)) if texts})
    return apply_patch(profile, changed)


def _labels(spec: ClusterColocationProfileSpec, own: Mapping[str, str], patched: Set[str]) -> dict[str, str]:
    last = {}
    if spec.qos_class:
        last[label_keys.QOS_CLASS] = spec.qos_class
    if spec.koordinator_priority is not None:
        last[label_keys.PRIORITY] = str(spec.koordinator_priority)
    replaced = patched | last.keys() | spec.label_suffixes.keys()
    labels, written = _copied_values({**own, **spec.labels}, spec.labels, spec.label_keys_mapping, replaced)
    for key, suffix in spec.label_suffixes.items():
        if key in labels and (key in written or not labels[key].endswith(suffix)):
            labels[key] += suffix
    return labels | last


def _copied_values(
    texts: Mapping[str, str], constant: Mapping[str, str], mapping: Mapping[str, str], replaced: Set[str]
) -> tuple[dict[str, str], Set[str]]:
    """``texts`` with values copied to other keys, and the keys whose value does not depend on the value that they had
    before.

    Every value is read before any is written. ``constant`` are the entries of ``texts`` that the profile sets,
    ``replaced`` the keys that it overwrites after this step."""
    replaced = replaced | set(mapping.values())
    written: dict[str, str] = {}
    for old, new in sorted(mapping.items()):
        if old in constant or (old in texts and old not in replaced):
            written[new] = texts[old]
        elif new not in texts and new not in written:
            written[new] = texts.get(old, "")
    return {**texts, **written}, constant.keys() | written.keys()


def _patched_keys(profile: CompiledProfile, part: str) -> Set[str]:
    metadata: Any = (profile.patch or {}).get("metadata")
    texts = metadata.get(part) if isinstance(metadata, dict) else None
    return texts.keys() if isinstance(texts, dict) else frozenset()
