"""CustomResourceDefinitions: names filled in, accepted at once, and checked for what serving them needs."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.names import dns_1035_label, dns_subdomain
from koordinator.api.timestamps import format_time
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy.causes import invalid, required
from koordinator.cluster.strategy.defaults import default_each, defaults_of
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.tables import CUSTOM_RESOURCE_DEFINITION

_PREFIX: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
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
        obj["status"] = {"conditions": [], "acceptedNames": {}, "storedVersions": []}
        self._accept(obj, context)

    def admit_update(self, obj: Document, old: Document, context: RequestContext) -> None:
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
        stored = status.get("storedVersions") or []
        storage = [version["name"] for version in obj["spec"].get("versions") or [] if version.get("storage")]
        status["storedVersions"] = stored + [name for name in storage if name not in stored]

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        spec = obj["spec"]
        names, group = spec["names"], spec.get("group") or ""
        causes = (
            [invalid("spec.group", group, text) for text in dns_subdomain(group)] if group else [required("spec.group")]
        )
        if obj["metadata"].get("name") != f"{names.get('plural')}.{group}":
            detail = 'must be spec.names.plural+"."+spec.group'
            causes.append(invalid("metadata.name", obj["metadata"].get("name"), detail))
        for name in ("plural", "singular", "kind", "listKind"):
            value = names.get(name) or ""
            causes += [invalid(f"spec.names.{name}", value, text) for text in dns_1035_label(value.lower())]
        return causes + _check_versions(spec.get("versions") or []) + _check_unchanged(spec, old)


def _check_versions(versions: list[Document]) -> list[Cause]:
    causes: list[Cause] = []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        shown = [version.get("name") for version in versions]
        causes.append(invalid("spec.versions", shown, "must have exactly one version marked as storage version"))
    for index, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            causes.append(required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required"))
    return causes


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
