"""Which requests a policy concerns, and where a binding puts it in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from koordinator.api.document import Document
from koordinator.cluster.admission_webhooks.configuration import Rule
from koordinator.cluster.verbs.selection import LabelMatcher, compile_selector


@dataclass(frozen=True, slots=True, eq=False)
class Constraints:
    """``matchConstraints`` of a policy, or ``matchResources`` of a binding."""

    rules: Sequence[Rule]
    excluded: Sequence[Rule]
    equivalent: bool
    namespaces: LabelMatcher | None
    objects: LabelMatcher | None

    @classmethod
    def parse(cls, document: Document) -> Constraints:
        return cls(
            rules=tuple(Rule.parse(rule) for rule in document.get("resourceRules") or ()),
            excluded=tuple(Rule.parse(rule) for rule in document.get("excludeResourceRules") or ()),
            equivalent=document.get("matchPolicy") != "Exact",
            namespaces=compile_selector(document.get("namespaceSelector")),
            objects=compile_selector(document.get("objectSelector")),
        )


class Binding:
    """Where a policy is in force, with which parameters, and what follows from a refusal."""

    def __init__(self, document: Document) -> None:
        spec = document["spec"]
        self.name: str = document["metadata"]["name"]
        self.policy: str = spec.get("policyName") or ""
        self.actions: Sequence[str] = tuple(spec.get("validationActions") or ())
        self.parameter: Document | None = spec.get("paramRef")
        resources = spec.get("matchResources")
        self.constraints = None if resources is None else Constraints.parse(resources)
