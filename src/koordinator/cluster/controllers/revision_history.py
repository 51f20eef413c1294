"""The templates that a DaemonSet or a StatefulSet has had, which it keeps as ControllerRevisions. Pure.

kubectl shows them with ``rollout history`` and takes one of them back with ``rollout undo``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.codec import without_nulls
from koordinator.api.document import Document, copied, same
from koordinator.api.kinds import Kind
from koordinator.api.meta import FreeForm, Object
from koordinator.cluster.controllers.deployment.template_hash import template_hash
from koordinator.cluster.controllers.ownership import controller_reference
from koordinator.cluster.controllers.workloads import RequiredCount

REVISION_HASH: Final = "controller-revision-hash"
"""The label that tells of which revision a pod is."""
_NOT_COPIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class ControllerRevision(Object):
    data: FreeForm = {}
    """A strategic merge patch that gives its owner the template back."""
    revision: RequiredCount = 0


CONTROLLER_REVISIONS: Final = Kind("apps", "v1", "controllerrevisions", "ControllerRevision", ControllerRevision)


@dataclass(frozen=True, slots=True)
class History:
    """The revisions of one owner, the oldest first."""

    current: ControllerRevision | None
    """That of the owner's template; None if it has to be created."""
    old: Sequence[ControllerRevision]
    number: int
    """The number that the current revision should have: the highest."""


def history_of(template: Document, revisions: Sequence[ControllerRevision]) -> History:
    """Sort the revisions of an owner by its template. Of several with the same template, the latest is the current."""
    data = template_data(template)
    ordered = sorted(revisions, key=lambda each: (each.revision, each.metadata.name))
    equal = [each for each in ordered if same(without_nulls(each.data), data)]
    current = equal[-1] if equal else None
    old = [each for each in ordered if each is not current]
    return History(current, old, max((each.revision for each in old), default=0) + 1)


def template_data(template: Document) -> Document:
    """A template as the data of a revision."""
    return {"spec": {"template": without_nulls(template) | {"$patch": "replace"}}}


def new_revision(
    kind: Kind[Any], owner: Object, template: Document, number: int, collisions: int, hash_label: str
) -> Document:
    """The ControllerRevision of a template. ``collisions``: how often its name was taken by another one."""
    name = template_hash(template, collisions or None)
    labels = copied((template.get("metadata") or {}).get("labels") or {})
    annotations = {key: value for key, value in owner.metadata.annotations.items() if key != _NOT_COPIED}
    return {
        "metadata": {
            "name": f"{owner.metadata.name}-{name}",
            "labels": labels | {hash_label: name},
            "annotations": annotations,
            "ownerReferences": [controller_reference(kind, owner)],
        },
        "data": template_data(template),
        "revision": number,
    }


def beyond_limit(history: History, in_use: Collection[str], limit: int) -> list[ControllerRevision]:
    """The oldest revisions that are to be deleted; ``in_use`` has the names of those that pods have."""
    surplus = len(history.old) - limit
    unused = [each for each in history.old if each.metadata.name not in in_use]
    return unused[: max(0, surplus)]
