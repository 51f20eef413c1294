"""A copy of a pod that admission may change: what no step writes to is shared with the pod that was sent.

To copy all of a pod takes as long as all that is done to it, and what is shared needs no comparing afterwards.
"""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document, copied

_CONTAINER_LISTS: Final = ("containers", "initContainers")
_WRITTEN: Final = ("overhead", "affinity")


def working_copy(pod: Document) -> Document:
    """Its metadata with labels and annotations, and its spec with what containers ask for, overhead and affinity, may
    be written to; everything else only replaced as a whole."""
    copy = dict(pod)
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if isinstance(metadata, dict):
        copy["metadata"] = _with_copies(metadata, "labels", "annotations")
    if isinstance(spec, dict):
        own = copy["spec"] = _with_copies(spec, *_WRITTEN)
        for name in _CONTAINER_LISTS:
            if isinstance(spec.get(name), list):
                own[name] = [_container(each) for each in spec[name]]
    return copy


def _container(container: Any) -> Any:
    return _with_copies(container, "resources") if isinstance(container, dict) else container


def _with_copies(parent: Document, *names: str) -> Document:
    return parent | {name: copied(parent[name]) for name in names if name in parent}
