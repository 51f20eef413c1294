"""The roles and bindings that every cluster has that decides by roles; what was taken out of them is put back.

An object that says ``autoupdate: "false"`` is left alone, as on the real server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from importlib import resources
from typing import Any, Final, Literal, NamedTuple

import yaml

from koordinator.api.document import Document
from koordinator.cluster.access.policy import RBAC_GROUP, RbacKind
from koordinator.cluster.access.rules import PolicyRule, missing
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.target import Target
from koordinator.cluster.verbs.update import modify

AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"
_AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
_BOOTSTRAPPING: Final = "kubernetes.io/bootstrapping"
_SUBJECTS: Final = {"group": "Group", "user": "User"}


class BootstrapObject(NamedTuple):
    kind: RbacKind
    namespace: str | None
    document: Document


@cache
def bootstrap_objects() -> tuple[BootstrapObject, ...]:
    """All of them, roles before bindings. The documents are shared: nobody may change them."""
    text = (resources.files(__package__) / "bootstrap_roles.yaml").read_text()
    entries = yaml.safe_load(text).items()
    return (*(_role(name, entry) for name, entry in entries), *_bindings(entries))


async def create_bootstrap_objects(environment: Environment) -> None:
    """Create those that are missing, and add to the others what they lack. Raises ApiError."""
    for kind, namespace, document in bootstrap_objects():
        resource = environment.registry.stored[RBAC_GROUP, kind]
        assert resource is not None
        target = Target(resource, namespace, document["metadata"]["name"])
        if environment.storage.get(target.key) is None:
            await create(environment, target, {**document, "metadata": {**document["metadata"]}})
        else:
            await modify(environment, target, partial(_completed, wanted=document))


def _completed(old: Document, wanted: Document) -> Document:
    if (old["metadata"].get("annotations") or {}).get(_AUTOUPDATE) == "false":
        return old
    metadata = dict(old["metadata"])
    for field in ("labels", "annotations"):
        metadata[field] = {**(metadata.get(field) or {}), **wanted["metadata"][field]}
    new = {**old, "metadata": metadata}
    if wanted.get("rules"):
        new["rules"] = [*(old.get("rules") or ()), *_lacking(old.get("rules") or (), wanted["rules"])]
    if wanted.get("subjects"):
        kept = old.get("subjects") or []
        new["subjects"] = [*kept, *(subject for subject in wanted["subjects"] if subject not in kept)]
    return new


def _lacking(old: Iterable[Mapping[str, Any]], wanted: Iterable[Mapping[str, Any]]) -> list[Document]:
    return [rule.document() for rule in missing(map(PolicyRule.of, old), map(PolicyRule.of, wanted))]


def _role(name: str, entry: Mapping[str, Any]) -> BootstrapObject:
    namespace, _, plain = name.rpartition("/")
    labels = {_BOOTSTRAPPING: "rbac-defaults", **{f"{AGGREGATE}{into}": "true" for into in entry.get("into", ())}}
    document: Document = {
        "metadata": _metadata(plain, labels, namespace),
        "rules": [*map(_rule, entry.get("rules", ()))],
    }
    if "aggregates" in entry:
        selector = {"matchLabels": {f"{AGGREGATE}{entry['aggregates']}": "true"}}
        document["aggregationRule"] = {"clusterRoleSelectors": [selector]}
        del document["rules"]
    return BootstrapObject("roles" if namespace else "clusterroles", namespace or None, document)


def _bindings(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[BootstrapObject]:
    for name, entry in entries:
        if "subjects" not in entry:
            continue
        namespace, _, role = name.rpartition("/")
        kind: Literal["Role", "ClusterRole"] = "Role" if namespace else "ClusterRole"
        document = {
            "metadata": _metadata(entry.get("binding", role), {_BOOTSTRAPPING: "rbac-defaults"}, namespace),
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": role},
            "subjects": [*map(_subject, entry["subjects"])],
        }
        yield BootstrapObject("rolebindings" if namespace else "clusterrolebindings", namespace or None, document)


def _metadata(name: str, labels: dict[str, str], namespace: str) -> Document:
    metadata: Document = {"name": name, "labels": labels, "annotations": {_AUTOUPDATE: "true"}}
    return {**metadata, "namespace": namespace} if namespace else metadata


def _rule(text: str) -> Document:
    """``VERBS | GROUPS | RESOURCES [| NAMES]``, or ``VERBS | PATHS``."""
    verbs, *parts = (tuple(part.split()) for part in text.split("|"))
    if len(parts) == 1:
        return PolicyRule(verbs, paths=parts[0]).document()
    groups, found, *names = parts
    groups = tuple("" if group == "core" else group for group in groups)
    return PolicyRule(verbs, groups, found, names[0] if names else ()).document()


def _subject(text: str) -> Document:
    kind, _, name = text.partition(" ")
    if kind in _SUBJECTS:
        return {"apiGroup": RBAC_GROUP, "kind": _SUBJECTS[kind], "name": name}
    namespace, _, account = name.partition("/")
    return {"kind": "ServiceAccount", "name": account, "namespace": namespace}
