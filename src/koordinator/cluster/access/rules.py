"""One rule of a role: what it permits, and whether it covers another rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from koordinator.cluster.strategy.causes import go_quoted

ALL: Final = "*"


class AccessRequest(msgspec.Struct, frozen=True):
    """What somebody wants to do: with a resource, or with a ``path`` that is none."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    """Empty for all namespaces, and for what has none."""
    name: str = ""
    path: str = ""
    node: str = ""
    """The node that a field selector limits a list or watch to: ``spec.nodeName``."""

    @property
    def qualified(self) -> str:
        """The resource as rules name it: ``pods/log``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class PolicyRule:
    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Empty for all objects."""
    paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> PolicyRule:
        """From an element of ``rules``."""
        return cls(
            *(
                tuple(document.get(name) or ())
                for name in ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
            )
        )

    def document(self) -> dict[str, list[str]]:
        """As reviews show it, without the fields that say nothing."""
        fields = {"verbs": self.verbs, "apiGroups": self.groups, "resources": self.resources}
        fields |= {"resourceNames": self.names, "nonResourceURLs": self.paths}
        return {name: list(values) for name, values in fields.items() if values}

    def __str__(self) -> str:
        """In the form in which a refusal names rights that are missing."""
        named = (
            ("APIGroups", self.groups),
            ("Resources", self.resources),
            ("NonResourceURLs", self.paths),
            ("ResourceNames", self.names),
            ("Verbs", self.verbs),
        )
        texts = (f"{name}:[{' '.join(map(go_quoted, values))}]" for name, values in named if values)
        return "{" + ", ".join(texts) + "}"


EVERYTHING: Final = (PolicyRule((ALL,), (ALL,), (ALL,)), PolicyRule((ALL,), paths=(ALL,)))
"""What the role cluster-admin permits."""


def path_matches(pattern: str, path: str) -> bool:
    """``/healthz/*`` stands for all that begins with ``/healthz/``."""
    if pattern in (ALL, path):
        return True
    return pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL))


# Whether rules together cover others: what a person holds who wants to grant something.


def missing(held: Iterable[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """What no rule of ``held`` covers, in parts as small as there are, those of one resource put together."""
    held = tuple(held)
    lacking = [part for rule in wanted for part in _parts(rule) if not any(_covers(each, part) for each in held)]
    return _compacted(lacking)


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    """One for each verb of each object or path that the rule names."""
    for group in rule.groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                if rule.names:
                    yield from (PolicyRule((verb,), (group,), (resource,), (name,)) for name in rule.names)
                else:
                    yield PolicyRule((verb,), (group,), (resource,))
    for path in rule.paths:
        yield from (PolicyRule((verb,), paths=(path,)) for verb in rule.verbs)


def _covers(rule: PolicyRule, part: PolicyRule) -> bool:
    if not _has(rule.verbs, part.verbs[0]):
        return False
    if part.paths:
        return any(path_matches(pattern, part.paths[0]) for pattern in rule.paths)
    resource = part.resources[0]
    if not _has(rule.groups, part.groups[0]) or not (
        _has(rule.resources, resource) or _every_parent(resource) in rule.resources
    ):
        return False
    return not rule.names or (bool(part.names) and part.names[0] in rule.names)


def _has(allowed: Sequence[str], wanted: str) -> bool:
    return ALL in allowed or wanted in allowed


def _every_parent(resource: str) -> str:
    """The same subresource of all resources."""
    _, slash, subresource = resource.partition("/")
    return f"{ALL}/{subresource}" if slash else resource


def _compacted(parts: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Those that differ in their verb alone, and are about resources, as one."""
    compact: list[PolicyRule] = []
    verbs: dict[PolicyRule, list[str]] = {}
    for part in parts:
        if part.paths:
            compact.append(part)
        else:
            verbs.setdefault(replace(part, verbs=()), []).extend(part.verbs)
    return compact + [replace(about, verbs=tuple(found)) for about, found in verbs.items()]
