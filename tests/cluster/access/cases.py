"""Generated roles, bindings and questions, small enough that they meet, and a slow authorizer to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from koordinator.cluster.access.identity import User, account_groups, account_name
from koordinator.cluster.access.policy import RBAC_GROUP
from koordinator.cluster.access.rules import AccessRequest

NAMESPACES = ("one", "two")
NAMES = ("a", "b", "c")
GROUPS = ("staff", "system:authenticated", account_groups("one")[0], account_groups("one")[1])
USERS = (*NAMES, account_name("one", "a"), account_name("two", "a"), account_name("one", "b"))
_VERBS = ("get", "list", "create", "*")
_API_GROUPS = ("", "apps", "*")
_RESOURCES = ("pods", "pods/log", "deployments", "deployments/scale", "*", "*/scale", "*/log")
_PATHS = ("/metrics", "/healthz/*", "/api", "/healthz", "*")
_FIRST = ("get", "list", "create")


def _some(values: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True)


_RESOURCE_RULES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"verbs": _some(_VERBS), "apiGroups": _some(_API_GROUPS), "resources": _some(_RESOURCES)},
    optional={"resourceNames": _some(("x", "y"))},
)
_PATH_RULES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"verbs": _some(_VERBS), "nonResourceURLs": _some(_PATHS)}
)


def rules(*, paths: bool) -> st.SearchStrategy[list[dict[str, Any]]]:
    each = st.one_of(_RESOURCE_RULES, _PATH_RULES) if paths else _RESOURCE_RULES
    return st.lists(each, max_size=3)


def _subject(namespaced: bool) -> st.SearchStrategy[dict[str, Any]]:
    user = st.sampled_from(USERS).map(lambda name: {"kind": "User", "name": name, "apiGroup": RBAC_GROUP})
    group = st.sampled_from(GROUPS).map(lambda name: {"kind": "Group", "name": name, "apiGroup": RBAC_GROUP})
    account = st.fixed_dictionaries(
        {"kind": st.just("ServiceAccount"), "name": st.sampled_from(NAMES), "namespace": st.sampled_from(NAMESPACES)}
    )
    local = st.fixed_dictionaries({"kind": st.just("ServiceAccount"), "name": st.sampled_from(NAMES)})
    return st.one_of(user, group, account, local) if namespaced else st.one_of(user, group, account)


@dataclass(frozen=True)
class RbacObject:
    kind: Any
    namespace: str
    name: str
    body: dict[str, Any]

    @property
    def document(self) -> dict[str, Any]:
        metadata = {"name": self.name, **({"namespace": self.namespace} if self.namespace else {})}
        return {"metadata": metadata, **self.body}


@st.composite
def objects(draw: st.DrawFn) -> RbacObject:
    kind = draw(st.sampled_from(("roles", "clusterroles", "rolebindings", "clusterrolebindings")))
    namespaced = not kind.startswith("cluster")
    namespace = draw(st.sampled_from(NAMESPACES)) if namespaced else ""
    name = draw(st.sampled_from(NAMES))
    if kind.endswith("roles"):
        return RbacObject(kind, namespace, name, {"rules": draw(rules(paths=not namespaced))})
    role = draw(st.sampled_from(("Role", "ClusterRole"))) if namespaced else "ClusterRole"
    reference = {"apiGroup": RBAC_GROUP, "kind": role, "name": draw(st.sampled_from(NAMES))}
    subjects = draw(st.lists(_subject(namespaced), max_size=3))
    return RbacObject(kind, namespace, name, {"roleRef": reference, "subjects": subjects})


USERS_WITH_GROUPS = st.builds(
    User, st.sampled_from(USERS), st.lists(st.sampled_from(GROUPS), max_size=2, unique=True).map(tuple)
)
REQUESTS = st.one_of(
    st.builds(
        AccessRequest,
        st.sampled_from(_FIRST),
        st.sampled_from(("", "apps", "batch")),
        st.sampled_from(("pods", "deployments")),
        st.sampled_from(("", "log", "scale")),
        st.sampled_from(("", *NAMESPACES)),
        st.sampled_from(("", "x", "y", "z")),
    ),
    st.builds(
        AccessRequest,
        st.sampled_from(_FIRST),
        path=st.sampled_from(("/metrics", "/healthz", "/healthz/etcd", "/api", "/api/v1")),
    ),
)


def slowly_allowed(store: dict[tuple[str, str, str], dict[str, Any]], user: User, request: AccessRequest) -> bool:
    """By the words of the documentation: walk over all bindings, all their subjects and all rules."""
    return any(_permits(rule, request) for rule in slow_rules(store, user, request.namespace))


def slow_rules(
    store: dict[tuple[str, str, str], dict[str, Any]], user: User, namespace: str
) -> Iterator[dict[str, Any]]:
    for (kind, place, _), document in store.items():
        applies = kind == "clusterrolebindings" or (kind == "rolebindings" and namespace and place == namespace)
        if not applies or not any(_is(subject, user, place) for subject in document["subjects"]):
            continue
        role = document["roleRef"]
        key = ("clusterroles", "", role["name"]) if role["kind"] == "ClusterRole" else ("roles", place, role["name"])
        yield from store.get(key, {}).get("rules", ())


def _is(subject: dict[str, Any], user: User, namespace: str) -> bool:
    if subject["kind"] == "User":
        return bool(subject["name"] == user.name)
    if subject["kind"] == "Group":
        return subject["name"] in user.groups
    return f"system:serviceaccount:{subject.get('namespace', namespace)}:{subject['name']}" == user.name


def _permits(rule: dict[str, Any], request: AccessRequest) -> bool:
    if "*" not in rule["verbs"] and request.verb not in rule["verbs"]:
        return False
    if request.path:
        return any(
            pattern in ("*", request.path) or (pattern[-1] == "*" and request.path.startswith(pattern[:-1]))
            for pattern in rule.get("nonResourceURLs", ())
        )
    groups, resources = rule.get("apiGroups", ()), rule.get("resources", ())
    wanted = request.resource + (f"/{request.subresource}" if request.subresource else "")
    has_resource = "*" in resources or wanted in resources
    if request.subresource:
        has_resource |= f"*/{request.subresource}" in resources
    has_name = not rule.get("resourceNames") or request.name in rule["resourceNames"]
    return ("*" in groups or request.group in groups) and has_resource and has_name
