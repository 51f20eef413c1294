"""The roles and bindings of a cluster, kept so that one question costs a few look-ups however many there are.

For each subject of a binding (a user or a group) there is a table of what its roles permit, by verb, group and resource
with their wildcards; it is made when the subject is asked for, and forgotten when a role or a binding changes that it
was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from koordinator.api.document import Document
from koordinator.cluster.access.identity import User, account_name
from koordinator.cluster.access.rules import ALL, AccessRequest, PolicyRule, path_matches

RbacKind = Literal["roles", "rolebindings", "clusterroles", "clusterrolebindings"]
KINDS: Final[tuple[RbacKind, ...]] = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_CLUSTER: Final = ""
"""In place of a namespace: of ClusterRoles and ClusterRoleBindings."""

RoleKey = tuple[str, str]
"""(namespace, name); the namespace of a ClusterRole is empty."""
Subject = tuple[str, str]
"""(``User`` or ``Group``, name); a ServiceAccount is a user."""
_NO_ROLE: Final = {True: "clusterrole", False: "role"}


@dataclass(frozen=True, slots=True)
class _Binding:
    namespace: str
    name: str
    role: RoleKey
    subjects: tuple[tuple[Subject, str], ...]
    """Each with how an explanation names it."""

    def explanation(self, shown: str) -> str:
        cluster_wide = self.namespace == _CLUSTER
        kind, name = (
            ("ClusterRoleBinding", self.name) if cluster_wide else ("RoleBinding", f"{self.name}/{self.namespace}")
        )
        role = "ClusterRole" if self.role[0] == _CLUSTER else "Role"
        return f'{kind} "{name}" of {role} "{self.role[1]}" to {shown}'


class _Grant(NamedTuple):
    names: frozenset[str]
    """Empty for all objects."""
    why: str


@dataclass(slots=True)
class _Table:
    """What one subject may do by the bindings of one namespace, or of the cluster."""

    resources: dict[tuple[str, str, str], list[_Grant]] = field(default_factory=dict)
    """(verb, group, resource)."""
    paths: list[tuple[PolicyRule, str]] = field(default_factory=list)
    rules: dict[tuple[str, str], tuple[PolicyRule, ...]] = field(default_factory=dict)
    """(namespace, name) of a binding -> what it grants."""
    errors: list[str] = field(default_factory=list)
    """Roles that bindings name and that are not there."""


class Decision(NamedTuple):
    allowed: bool
    reason: str = ""


class Policy:
    """Changed by ``put`` and ``remove`` as objects are; asked by ``decide``."""

    def __init__(self) -> None:
        self._roles: dict[RoleKey, tuple[PolicyRule, ...]] = {}
        self._bindings: dict[tuple[str, str], _Binding] = {}
        self._of_subject: dict[tuple[str, Subject], dict[str, _Binding]] = {}
        """(namespace, subject) -> its bindings there, by name."""
        self._of_role: dict[RoleKey, set[tuple[str, str]]] = {}
        self._tables: dict[tuple[str, Subject], _Table] = {}

    def put(self, kind: RbacKind, obj: Document) -> None:
        """A role or a binding as it is now."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace") or _CLUSTER, metadata["name"])
        if kind in ("roles", "clusterroles"):
            self._roles[key] = tuple(map(PolicyRule.of, obj.get("rules") or ()))
            self._forget_role(key)
        else:
            self._unbind(key)
            self._bind(_binding(obj))

    def remove(self, kind: RbacKind, namespace: str, name: str) -> None:
        key = (namespace, name)
        if kind in ("roles", "clusterroles"):
            self._roles.pop(key, None)
            self._forget_role(key)
        else:
            self._unbind(key)

    def decide(self, user: User, request: AccessRequest) -> Decision:
        """Whether a role permits it, with the binding that does so, or with what is wrong with the user's bindings."""
        errors: list[str] = []
        for table in self._tables_of(user, request.namespace):
            why = _why(table, request)
            if why is not None:
                return Decision(True, f"RBAC: allowed by {why}")
            errors += table.errors
        return Decision(False, _reason(errors))

    def rules_for(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        """All rules that hold for the user in the namespace, and what keeps the list from being complete."""
        tables = tuple(self._tables_of(user, namespace))
        # A binding may be to the user and to a group of the user.
        by_binding = {key: rules for table in tables for key, rules in table.rules.items()}
        rules = [rule for granted in by_binding.values() for rule in granted]
        return rules, [text for table in tables for text in table.errors]

    def rules_of(self, namespace: str, role: Mapping[str, Any]) -> tuple[PolicyRule, ...] | None:
        """Those of the role that a binding in the namespace refers to; None when there is no such role."""
        return self._roles.get(_role_key(namespace, role))

    def _tables_of(self, user: User, namespace: str) -> Iterator[_Table]:
        places = (_CLUSTER, namespace) if namespace else (_CLUSTER,)
        subjects = (("User", user.name), *(("Group", group) for group in user.groups))
        for place in places:
            for subject in subjects:
                key = (place, subject)
                if key in self._of_subject:
                    yield self._table(key)

    def _table(self, key: tuple[str, Subject]) -> _Table:
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = self._made(key)
        return table

    def _made(self, key: tuple[str, Subject]) -> _Table:
        table = _Table()
        for _, binding in sorted(self._of_subject[key].items()):
            rules = self._roles.get(binding.role)
            if rules is None:
                table.errors.append(
                    f'{_NO_ROLE[binding.role[0] == _CLUSTER]}.{RBAC_GROUP} "{binding.role[1]}" not found'
                )
                continue
            shown = next(text for subject, text in binding.subjects if subject == key[1])
            table.rules[binding.namespace, binding.name] = rules
            _add(table, rules, binding.explanation(shown))
        return table

    def _bind(self, binding: _Binding) -> None:
        key = (binding.namespace, binding.name)
        self._bindings[key] = binding
        self._of_role.setdefault(binding.role, set()).add(key)
        for subject in _subjects(binding):
            self._of_subject.setdefault(subject, {})[binding.name] = binding
            self._tables.pop(subject, None)

    def _unbind(self, key: tuple[str, str]) -> None:
        binding = self._bindings.pop(key, None)
        if binding is None:
            return
        self._of_role[binding.role].discard(key)
        if not self._of_role[binding.role]:
            del self._of_role[binding.role]
        for subject in _subjects(binding):
            self._of_subject[subject].pop(binding.name, None)
            if not self._of_subject[subject]:
                del self._of_subject[subject]
            self._tables.pop(subject, None)

    def _forget_role(self, role: RoleKey) -> None:
        for key in self._of_role.get(role, ()):
            for subject in _subjects(self._bindings[key]):
                self._tables.pop(subject, None)


def _subjects(binding: _Binding) -> set[tuple[str, Subject]]:
    return {(binding.namespace, subject) for subject, _ in binding.subjects}


def _binding(obj: Document) -> _Binding:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace") or _CLUSTER
    subjects = tuple(
        found for subject in obj.get("subjects") or () if (found := _subject(subject, namespace)) is not None
    )
    return _Binding(namespace, metadata["name"], _role_key(namespace, obj["roleRef"]), subjects)


def _role_key(namespace: str, reference: Mapping[str, Any]) -> RoleKey:
    return (namespace if reference.get("kind") == "Role" else _CLUSTER, str(reference.get("name") or ""))


def _subject(subject: Mapping[str, Any], namespace: str) -> tuple[Subject, str] | None:
    """A ServiceAccount without a namespace is of the binding's; a ClusterRoleBinding has none."""
    kind, name = subject.get("kind") or "", subject.get("name") or ""
    if kind in ("User", "Group"):
        return (kind, name), f'{kind} "{name}"'
    own = subject.get("namespace") or namespace
    if kind != "ServiceAccount" or not own:
        return None
    return ("User", account_name(own, name)), f'{kind} "{name}/{own}"'


def _add(table: _Table, rules: Iterable[PolicyRule], why: str) -> None:
    for rule in rules:
        if rule.paths:
            table.paths.append((rule, why))
        grant = _Grant(frozenset(rule.names), why)
        for verb in rule.verbs:
            for group in rule.groups:
                for resource in rule.resources:
                    table.resources.setdefault((verb, group, resource), []).append(grant)


def _why(table: _Table, request: AccessRequest) -> str | None:
    """What permits the request; None when nothing does."""
    if request.path:
        return next(
            (
                why
                for rule, why in table.paths
                if (ALL in rule.verbs or request.verb in rule.verbs)
                and any(path_matches(pattern, request.path) for pattern in rule.paths)
            ),
            None,
        )
    resources = [request.qualified, ALL]
    if request.subresource:
        resources.append(f"{ALL}/{request.subresource}")
    for verb in (request.verb, ALL):
        for group in (request.group, ALL):
            for resource in resources:
                for grant in table.resources.get((verb, group, resource), ()):
                    if not grant.names or request.name in grant.names:
                        return grant.why
    return None


def _reason(errors: list[str]) -> str:
    return f"RBAC: {listed(errors)}" if errors else ""


def listed(errors: Iterable[str]) -> str:
    """Several errors as one, each once."""
    texts = list(dict.fromkeys(errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
