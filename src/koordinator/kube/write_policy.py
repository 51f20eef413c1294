"""Which requests of a client may change something: all of them, or, for a program that only looks on, none.

A dry run cannot rely on each of its controllers to remember that it is one. So its client has no way to write: whatever
asks for it, and by whichever verb, the request is refused where all requests of the client are sent from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from koordinator.kube.errors import WriteRefusedError

_READS: Final = frozenset(("GET", "HEAD"))
_VERBS: Final = {"PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_QUESTIONS: Final = frozenset(
    (
        ("", "serviceaccounts/token"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    )
)
"""Of which a create stores nothing: it asks the API server a question, or for a token."""


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """Refuses all writes. ``purpose`` says who refuses, such as "a dry run"."""

    purpose: str

    def check(self, method: str, target: str) -> None:
        """Raise WriteRefusedError unless the request changes nothing. ``target`` is its path and query."""
        if method in _READS:
            return
        about = _Target.parse(target)
        if method == "POST" and about is not None and (about.group, about.resource) in _QUESTIONS:
            return
        raise WriteRefusedError(self.purpose, *_describe(method, target, about))


@dataclass(frozen=True, slots=True)
class _Target:
    """What a path of the API is about; ``resource`` includes the subresource."""

    group: str
    resource: str
    name: str

    @classmethod
    def parse(cls, target: str) -> _Target | None:
        """None for a path that is about no resource."""
        root, *parts = target.partition("?")[0].strip("/").split("/")
        prefix = {"api": 1, "apis": 2}.get(root, len(parts))
        group, rest = parts[0] if root == "apis" and parts else "", parts[prefix:]
        namespace = ""
        # A namespace has two subresources; what else follows its name is about something in it.
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = f"{rest[1]}/", rest[2:]
        if not rest:
            return None
        return cls(group, "/".join((rest[0], *rest[2:])), namespace + (rest[1] if len(rest) > 1 else ""))


def _describe(method: str, target: str, about: _Target | None) -> tuple[str, str, str]:
    """The verb, the resource and the name, as the API server's audit log has them."""
    if about is None:
        return method, target.partition("?")[0], ""
    verb = _VERBS.get(method, "create" if method == "POST" else method)
    if verb == "delete" and (not about.name or about.name.endswith("/")):
        verb = "deletecollection"
    resource = f"{about.resource}.{about.group}" if about.group else about.resource
    return verb, resource, about.name
