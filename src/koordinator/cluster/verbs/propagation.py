"""What becomes of an object's dependents: the finalizers by which a deletion makes the object wait for that.

The server only sets them, as kube-apiserver does. The garbage collector does what they ask for, and takes them away.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Resource
from koordinator.cluster.verbs.options import DeleteOptions
from koordinator.cluster.verbs.target import is_namespace

ORPHAN: Final = "orphan"
"""Finalizer of an object whose dependents lose their reference to it before it goes."""
FOREGROUND: Final = "foregroundDeletion"
"""Finalizer of an object that goes after those of its dependents that block its deletion."""
FOREGROUND_POLICY: Final = "Foreground"
BACKGROUND_POLICY: Final = "Background"
ORPHAN_POLICY: Final = "Orphan"
_FINALIZERS: Final = {FOREGROUND_POLICY: FOREGROUND, ORPHAN_POLICY: ORPHAN, BACKGROUND_POLICY: ""}
_ORPHANING: Final = frozenset((("", "v1", "replicationcontrollers"), ("batch", "v1", "jobs")))
"""Kinds whose dependents stay unless the request says otherwise, as they did before there was a garbage collector."""
_WITHOUT_DEPENDENTS: Final = frozenset(("events",))
"""Kinds that own nothing: no deletion of one waits."""


def finalizers_for(resource: Resource, obj: Document, options: DeleteOptions) -> list[str]:
    """The finalizers that ``obj`` has once its deletion is requested with ``options``."""
    present: list[str] = obj["metadata"].get("finalizers") or []
    if resource.plural in _WITHOUT_DEPENDENTS and resource.group in ("", "events.k8s.io"):
        return present
    wanted = _namespace(present, options) if is_namespace(resource) else _ordinary(resource, present, options)
    kept = [each for each in present if each not in (ORPHAN, FOREGROUND)]
    return [*kept, wanted] if wanted else kept


def _ordinary(resource: Resource, present: list[str], options: DeleteOptions) -> str:
    """What the request says; else what was said before; else what is usual for the kind."""
    if options.orphan_dependents is not None:
        return ORPHAN if options.orphan_dependents else ""
    if options.propagation_policy:
        return _FINALIZERS[options.propagation_policy]
    said = next((each for each in present if each in (ORPHAN, FOREGROUND)), "")
    if said:
        return said
    return ORPHAN if (resource.group, resource.version, resource.plural) in _ORPHANING else ""


def _namespace(present: list[str], options: DeleteOptions) -> str:
    """A namespace has rules of its own: not to orphan means to wait."""
    if options.orphan_dependents is not None:
        return ORPHAN if options.orphan_dependents else FOREGROUND
    if options.propagation_policy:
        return _FINALIZERS[options.propagation_policy]
    return next((each for each in present if each in (ORPHAN, FOREGROUND)), "")
