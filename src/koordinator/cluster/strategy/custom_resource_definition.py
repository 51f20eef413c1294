"""CustomResourceDefinitions: names filled in, accepted at once, and checked for what serving them needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from koordinator.api.document import Document, same
from koordinator.api.names import dns_1035_label, dns_subdomain
from koordinator.api.timestamps import format_time
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy.causes import forbidden, invalid, not_supported, required
from koordinator.cluster.strategy.object_strategy import ObjectStrategy, default_each, defaults_of
from koordinator.cluster.strategy.table import NAME_AND_AGE
from koordinator.cluster.strategy.webhook_configuration import validate_client
from koordinator.cluster.structural_schema.definition_check import definition_causes, definition_warnings

# What a definition may call its kind, and how it may say that versions are converted; in the real server's words.


_SCOPES: Final = ("Cluster", "Namespaced")
_STRATEGIES: Final = ("None", "Webhook")
_REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_REQUIRED: Final = ("plural", "singular", "kind", "listKind")
_MIXED: Final = "may have mixed case, but should otherwise match: "


def check_group_and_scope(spec: Document) -> list[Cause]:
    group = spec.get("group") or ""
    if not group:
        causes = [required("spec.group")]
    elif errors := dns_subdomain(group):
        causes = [invalid("spec.group", group, ",".join(errors))]
    elif "." not in group:
        causes = [invalid("spec.group", group, "should be a domain with at least one dot")]
    else:
        causes = []
    return causes + _one_of("spec.scope", spec.get("scope") or "", _SCOPES)


def check_names(names: Document) -> list[Cause]:
    causes = [required(f"spec.names.{name}") for name in _REQUIRED if not names.get(name)]
    for name in ("plural", "singular"):
        causes += _label(f"spec.names.{name}", names[name]) if names.get(name) else []
    for name in ("kind", "listKind"):
        if errors := dns_1035_label(names[name].lower()) if names.get(name) else []:
            causes.append(invalid(f"spec.names.{name}", names[name], _MIXED + ",".join(errors)))
    for name in ("shortNames", "categories"):
        for index, value in enumerate(names.get(name) or ()):
            causes += _label(f"spec.names.{name}[{index}]", value or "")
    if names.get("kind") and names["kind"] == names.get("listKind"):
        causes.append(invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same"))
    return causes


def check_conversion(conversion: Document) -> list[Cause]:
    field = "spec.conversion"
    causes = _one_of(f"{field}.strategy", conversion.get("strategy") or "", _STRATEGIES)
    webhook = conversion.get("webhook") or {}
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    # The real server checks its internal form, in which these two lie side by side.
    client_field, versions_field = f"{field}.webhookClientConfig", f"{field}.conversionReviewVersions"
    if conversion.get("strategy") != "Webhook":
        why = "should not be set when strategy is not set to Webhook"
        causes += [forbidden(client_field, why)] if client is not None else []
        return causes + ([forbidden(versions_field, why)] if versions else [])
    if client is None:
        causes.append(required(client_field, "required when strategy is set to Webhook"))
    else:
        causes += validate_client(client, client_field)
    return causes + _check_review_versions(versions, versions_field)


def _check_review_versions(versions: list[str], field: str) -> list[Cause]:
    if not versions:
        return [required(field)]
    causes: list[Cause] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            causes.append(invalid(f"{field}[{index}]", version, "duplicate version"))
        else:
            causes += [invalid(f"{field}[{index}]", version, text) for text in dns_1035_label(version)]
    if not set(versions) & set(_REVIEW_VERSIONS):
        causes.append(invalid(field, versions, f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"))
    return causes


def _label(field: str, value: str) -> list[Cause]:
    errors = dns_1035_label(value)
    return [invalid(field, value, ",".join(errors))] if errors else []


def _one_of(field: str, value: str, accepted: Sequence[str]) -> list[Cause]:
    if not value:
        return [required(field)]
    return [] if value in accepted else [not_supported(field, value, accepted)]


# What is wrong with the versions of a definition: schemas, columns, subresources, storage; in the real server's words.
#
# The real server checks an internal form in which whatever all versions share lies beside the versions, once; hence the
# paths of the errors.


_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_WARNING_LENGTH: Final = 256
_STORED: Final = "status.storedVersions"


def schema_of(version: Document) -> Document | None:
    schema: Document | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema


def check_versions(versions: list[Document]) -> list[Cause]:
    causes: list[Cause] = []
    names = [version.get("name") or "" for version in versions]
    if len(set(names)) < len(names):
        causes.append(invalid("spec.versions", names, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        causes.append(invalid("spec.versions", names, "must have exactly one version marked as storage version"))
    for index, version in enumerate(versions):
        if errors := dns_1035_label(names[index]):
            causes.append(invalid(f"spec.versions[{index}].name", names[index], ",".join(errors)))
            # The first version lies beside the others, too, if it has a name.
            if names[index] and not index:
                causes.append(invalid("spec.version", names[index], ",".join(errors)))
        if schema_of(version) is None:
            causes.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
        causes += _check_deprecation(version, f"spec.versions[{index}].deprecationWarning")
    return causes


def check_parts(versions: list[Document], old: list[Document]) -> list[Cause]:
    """What the versions say of schemas, columns and scales. ``old`` are the versions as they were: a schema is checked
    when it is new."""
    return _check_schemas(versions, old) + _check_columns(versions) + _check_scales(versions)


def check_stored_versions(stored: list[str], versions: list[Document]) -> list[Cause]:
    """No version may go that there might be objects of."""
    if not stored:
        return [invalid(_STORED, None, "must have at least one stored version")]
    names = [version.get("name") for version in versions]
    # A second version of the same name finds the stored one taken.
    causes = [
        invalid(_STORED, stored, f"must have the storage version {name}")
        for index, (name, version) in enumerate(zip(names, versions, strict=True))
        if version.get("storage") and (name not in stored or name in names[:index])
    ]
    served = {version.get("name") for version in versions}
    for index, name in enumerate(stored):
        if name not in served:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from {_STORED}"
            )
            causes.append(invalid(f"{_STORED}[{index}]", name, why))
    return causes


def version_warnings(versions: list[Document]) -> list[str]:
    return [
        text for _, _, schema in _parts(versions, "schema") for text in definition_warnings(schema["openAPIV3Schema"])
    ]


def _parts(versions: list[Document], name: str, beside: str = "") -> Iterator[tuple[str, Document, Any]]:
    """(path, version, what it says of ``name``); once where all say the same, then with the path ``spec.BESIDE``."""
    said = [version.get(name) for version in versions]
    if said and all(same(part, said[0]) for part in said):
        if said[0]:
            yield f"spec.{beside or name}", versions[0], said[0]
        return
    for index, part in enumerate(said):
        if part:
            yield f"spec.versions[{index}].{name}", versions[index], part


def _check_schemas(versions: list[Document], old: list[Document]) -> list[Cause]:
    known = [[version.get("name"), schema_of(version), _has_status(version)] for version in old]
    causes: list[Cause] = []
    for path, version, said in _parts(versions, "schema", "validation"):
        schema = said.get("openAPIV3Schema")
        status = _has_status(version) or (path == "spec.validation" and any(map(_has_status, versions)))
        found = [version.get("name"), schema, _has_status(version)]
        if schema is not None and not any(same(found, former) for former in known):
            causes += definition_causes(schema, f"{path}.openAPIV3Schema", status=status)
    return causes


def _has_status(version: Document) -> bool:
    return (version.get("subresources") or {}).get("status") is not None


def _check_deprecation(version: Document, field: str) -> list[Cause]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return []
    if not version.get("deprecated"):
        return [invalid(field, warning, "can only be set for deprecated versions")]
    if len(warning) > _WARNING_LENGTH:
        return [invalid(field, warning, f"must be <= {_WARNING_LENGTH} characters long")]
    if not warning:
        return [invalid(field, warning, "must not be an empty string")]
    for index, character in enumerate(warning):
        if not character.isprintable():
            why = "must only contain printable UTF-8 characters; non-printable character found at index"
            return [invalid(field, warning, f"{why} {len(warning[:index].encode())}")]
    return []


def _check_columns(versions: list[Document]) -> list[Cause]:
    causes: list[Cause] = []
    for path, _, columns in _parts(versions, "additionalPrinterColumns"):
        for index, column in enumerate(columns):
            causes += _check_column(column, f"{path}[{index}]")
    return causes


def _check_column(column: Document, field: str) -> list[Cause]:
    causes = [] if column.get("name") else [required(f"{field}.name")]
    kind, form, path = column.get("type") or "", column.get("format") or "", column.get("jsonPath") or ""
    types = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        causes.append(required(f"{field}.type", types))
    elif kind not in _COLUMN_TYPES:
        causes.append(invalid(f"{field}.type", kind, types))
    if form and form not in _COLUMN_FORMATS:
        causes.append(invalid(f"{field}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}"))
    if not path:
        return [*causes, required(f"{field}.JSONPath")]
    return causes + _check_path(path, f"{field}.JSONPath")


def _check_path(path: str, field: str, *roots: str) -> list[Cause]:
    """A simple JSON path, below one of ``roots`` if there are any."""
    if not path.startswith("."):
        return [invalid(field, path, "must be a simple json path starting with .")]
    if not roots or any(path.startswith(f"{root}.") for root in roots):
        return []
    under = roots[0] if len(roots) == 1 else f"either {' or '.join(roots)}"
    return [invalid(field, path, f"should be a json path under {under}")]


def _check_scales(versions: list[Document]) -> list[Cause]:
    causes: list[Cause] = []
    for path, _, subresources in _parts(versions, "subresources"):
        scale = subresources.get("scale")
        if scale is None:
            continue
        for name, root in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
            field, value = f"{path}.scale.{name}", scale.get(name) or ""
            causes += _check_path(value, field, root) if value else [required(field)]
        if selector := scale.get("labelSelectorPath"):
            causes += _check_path(selector, f"{path}.scale.labelSelectorPath", ".spec", ".status")
    return causes


_PREFIX: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
_PRESERVE_BY_SCHEMA: Final = (
    "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
)
_ACCEPTED: Final = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)

DELETION_PENDING: Final = {
    "Terminating": (
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    )
}
DELETION_IN_PROGRESS: Final = {
    "Terminating": ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
}
DELETION_COMPLETED: Final = {"Terminating": ("False", "InstanceDeletionCompleted", "removed all instances")}


@defaults_of(f"{_PREFIX}CustomResourceDefinitionSpec")
def _definition(spec: Document) -> None:
    names = spec["names"]
    default_each(names, "singular", (names.get("kind") or "").lower())
    if names.get("kind"):
        default_each(names, "listKind", f"{names['kind']}List")
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
            table=NAME_AND_AGE,
            generation=True,
            status=True,
        )

    def initialize(self, obj: Document, context: RequestContext) -> None:
        versions = obj["spec"].get("versions") or []
        context.warnings.extend(version_warnings(versions))
        stored = [version["name"] for version in versions if version.get("storage")]
        obj["status"] = {"conditions": [], "acceptedNames": {}, "storedVersions": stored[:1]}
        self._accept(obj, context)

    def carry_over(self, obj: Document, old: Document, context: RequestContext) -> None:
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
        name = obj["metadata"].get("name")
        if old is None and name and name != f"{names.get('plural') or ''}.{group}":
            causes.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
        causes += check_group_and_scope(spec)
        causes += check_versions(versions) + check_names(names) + check_parts(versions, before.get("versions") or [])
        causes += check_conversion(spec["conversion"]) if spec.get("conversion") else []
        causes += check_stored_versions((obj.get("status") or {}).get("storedVersions") or [], versions)
        strategy = (spec.get("conversion") or {}).get("strategy") or "None"
        if spec.get("preserveUnknownFields") and strategy != "None":
            why = "must be None if spec.preserveUnknownFields is true"
            causes.append(invalid("spec.conversion.strategy", strategy, why))
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
