"""What a profile makes of a pod that exists already, and which pods it is for.

The same as at a pod's creation, but for what cannot be changed any more or would not mean the same again: scheduler,
priority class and resources stay. A profile may come to a pod many times, and only the first must make a difference:

- A suffix that a label ends with is there already, unless the profile gives the label its value anew each time.
- A value is copied to another key for as long as it is the pod's own. One that the profile replaces afterwards, or that
  is gone, is copied only to a key that is not there yet.
- Whether a pod is one of those that ``probability`` means depends on the pod and the profile, not on when it is asked.
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
    """Whether existing pods are to follow the profile."""
    metadata = profile.metadata
    if metadata.deletion_timestamp is not None:
        return False
    return by_default or metadata.labels.get(label_keys.CONTROLLER_MANAGED) == _MANAGED


def compile_for_pods(profile: ClusterColocationProfile) -> CompiledProfile:
    return compile_profile(profile, named(_POD))


def is_for(profile: CompiledProfile, labels: Mapping[str, str], namespace_labels: Mapping[str, str] | None) -> bool:
    """Whether a pod matches; ``namespace_labels`` None is a namespace that is not known. Without a selector a profile
    is for no pod that exists, unlike for new ones."""
    if profile.spec.selector is None or not profile.objects.matches(labels):
        return False
    if profile.namespaces.empty:
        return True
    return namespace_labels is not None and profile.namespaces.matches(namespace_labels)


def is_drawn(profile: CompiledProfile, uid: str) -> bool:
    """Whether the pod is one of the share that the profile changes."""
    if profile.percent >= ALWAYS:
        return True
    digest = hashlib.sha256(f"{profile.name}/{uid}".encode()).digest()
    return int.from_bytes(digest[:8]) % ALWAYS < profile.percent


def reads_whole_pod(profile: CompiledProfile) -> bool:
    """Whether more than a pod's labels and annotations has to be known to tell what the profile makes of it."""
    patch = profile.patch
    if not patch:
        return False
    metadata = patch.get("metadata")
    return patch.keys() != {"metadata"} or not isinstance(metadata, dict) or not metadata.keys() <= _TEXTS


def changed_pod(profile: CompiledProfile, pod: Document) -> Document:
    """The pod as the profile wants it; ``pod`` stays. Raises ProfileError where the profile's patch does not fit."""
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
    """``texts`` with values copied to other keys, and the keys whose value does not depend on what they had before.

    Every value is read before any is written. ``constant`` are those of ``texts`` that the profile says, ``replaced``
    the keys that it writes after this."""
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
