"""CustomResourceDefinitions: names filled in, accepted at once, and checked for what serving them needs."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.timestamps import format_time
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy.causes import invalid
from koordinator.cluster.strategy.custom_resource_names import check_conversion, check_group_and_scope, check_names
from koordinator.cluster.strategy.custom_resource_versions import (
    check_stored_versions,
    check_versions,
    version_warnings,
)
from koordinator.cluster.strategy.defaults import default_each, defaults_of
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.tables import CUSTOM_RESOURCE_DEFINITION

_PREFIX: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
_PRESERVE_BY_SCHEMA: Final = (
    "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
)
_ACCEPTED: Final = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)


@defaults_of(f"{_PREFIX}CustomResourceDefinitionSpec")
def _definition(spec: Document) -> None:
    names = spec["names"]
    default_each(names, "singular", (names.get("kind") or "").lower())
    default_each(names, "listKind", f"{names.get('kind') or ''}List")
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service:
        service.setdefault("port", 443)


class CustomResourceDefinitionStrategy(ObjectStrategy):
    def __init__(self) -> None:
        super().__init__(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            namespaced=False,
            table=CUSTOM_RESOURCE_DEFINITION,
            generation=True,
            status=True,
        )

    def initialize(self, obj: Document, context: RequestContext) -> None:
        versions = obj["spec"].get("versions") or []
        context.warnings.extend(version_warnings(versions))
        stored = [version["name"] for version in versions if version.get("storage")]
        obj["status"] = {"conditions": [], "acceptedNames": {}, "storedVersions": stored[:1]}
        self._accept(obj, context)

    def admit_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        known = version_warnings(old["spec"].get("versions") or [])
        found = version_warnings(obj["spec"].get("versions") or [])
        context.warnings.extend(text for text in found if text not in known)
        stored = obj.setdefault("status", {}).get("storedVersions") or []
        storage = [version["name"] for version in obj["spec"].get("versions") or [] if version.get("storage")]
        obj["status"]["storedVersions"] = stored + [name for name in storage if name not in stored]
        self._accept(obj, context)

    def _accept(self, obj: Document, context: RequestContext) -> None:
        """What a controller of the real server writes a moment later: nothing here can refuse a name."""
        status = obj.setdefault("status", {})
        status["acceptedNames"] = dict(obj["spec"]["names"])
        present = {condition.get("type") for condition in status.get("conditions") or []}
        now = format_time(context.now)
        status["conditions"] = (status.get("conditions") or []) + [
            {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
            for kind, reason, message in _ACCEPTED
            if kind not in present
        ]

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        spec, before = obj["spec"], old["spec"] if old is not None else {}
        names, group, versions = spec["names"], spec.get("group") or "", spec.get("versions") or []
        causes: list[Cause] = []
        if obj["metadata"].get("name") != f"{names.get('plural')}.{group}":
            detail = 'must be spec.names.plural+"."+spec.group'
            causes.append(invalid("metadata.name", obj["metadata"].get("name"), detail))
        causes += check_group_and_scope(spec)
        causes += check_versions(versions, before.get("versions") or [])
        causes += check_names(names)
        causes += check_conversion(spec["conversion"], before.get("conversion") or {}) if spec.get("conversion") else []
        causes += check_stored_versions((obj.get("status") or {}).get("storedVersions") or [], versions)
        if spec.get("preserveUnknownFields") and not before.get("preserveUnknownFields"):
            causes.append(invalid("spec.preserveUnknownFields", True, _PRESERVE_BY_SCHEMA))
        return causes + _check_unchanged(spec, old)


def _check_unchanged(spec: Document, old: Document | None) -> list[Cause]:
    if old is None:
        return []
    before = old["spec"]
    pairs = [
        ("spec.group", spec.get("group"), before.get("group")),
        ("spec.scope", spec.get("scope"), before.get("scope")),
        ("spec.names.kind", spec["names"].get("kind"), before["names"].get("kind")),
        ("spec.names.plural", spec["names"].get("plural"), before["names"].get("plural")),
    ]
    return [invalid(field, new, "field is immutable") for field, new, former in pairs if new != former]
