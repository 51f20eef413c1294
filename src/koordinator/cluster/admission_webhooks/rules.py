"""Does a webhook want to hear of an operation on a resource?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from koordinator.api.document import Document
from koordinator.cluster.resource import Resource
from koordinator.cluster.verbs.finalizers import is_namespace


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of ``rules``; ``*`` stands for everything in each of its lists."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: Sequence[tuple[str, str]]
    """(resource, subresource), the latter empty for the resource itself."""
    scope: str

    @classmethod
    def parse(cls, rule: Document) -> Rule:
        parts = [text.partition("/") for text in rule.get("resources") or ()]
        return cls(
            operations=frozenset(rule.get("operations") or ()),
            groups=frozenset(rule.get("apiGroups") or ()),
            versions=frozenset(rule.get("apiVersions") or ()),
            resources=tuple((resource, subresource) for resource, _, subresource in parts),
            scope=rule.get("scope") or "*",
        )

    def matches(self, operation: str, resource: Resource, subresource: str, namespaced: bool) -> bool:
        """``namespaced``: the request names a namespace; a Namespace itself counts as cluster-scoped all the same."""
        return (
            _covers(self.operations, operation)
            and _covers(self.groups, resource.group)
            and _covers(self.versions, resource.version)
            and any(
                wanted in ("*", resource.plural) and below in ("*", subresource) for wanted, below in self.resources
            )
            and self._in_scope(resource, namespaced)
        )

    def _in_scope(self, resource: Resource, namespaced: bool) -> bool:
        if self.scope == "*":
            return True
        return (self.scope == "Namespaced") == (namespaced and not is_namespace(resource))


def _covers(items: frozenset[str], item: str) -> bool:
    return item in items or "*" in items
