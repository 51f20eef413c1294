"""What is wrong with the versions of a definition: schemas, columns, subresources, storage; in the real server's words.

The real server checks an internal form in which whatever all versions share lies beside the versions, once; hence the
paths of the complaints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from koordinator.api.document import Document, same
from koordinator.api.names import dns_1035_label
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid, required
from koordinator.cluster.structural_schema.definition_check import definition_causes, definition_warnings

_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_WARNING_LENGTH: Final = 256
_STORED: Final = "status.storedVersions"


def schema_of(version: Document) -> Document | None:
    schema: Document | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema


def check_versions(versions: list[Document], old: list[Document]) -> list[Cause]:
    """``old`` are the versions as they were: a schema is checked when it is new."""
    causes: list[Cause] = []
    names = [version.get("name") or "" for version in versions]
    if len(set(names)) < len(names):
        causes.append(invalid("spec.versions", names, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        causes.append(invalid("spec.versions", names, "must have exactly one version marked as storage version"))
    for index, version in enumerate(versions):
        if complaints := dns_1035_label(names[index]):
            causes.append(invalid(f"spec.versions[{index}].name", names[index], ",".join(complaints)))
            # The first version lies beside the others, too.
            causes += [] if index else [invalid("spec.version", names[index], ",".join(complaints))]
        if not schema_of(version):
            causes.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
        causes += _check_deprecation(version, f"spec.versions[{index}].deprecationWarning")
    return causes + _check_schemas(versions, old) + _check_columns(versions) + _check_scales(versions)


def check_stored_versions(stored: list[str], versions: list[Document]) -> list[Cause]:
    """No version may go that there might be objects of."""
    if not stored:
        return [invalid(_STORED, None, "must have at least one stored version")]
    causes = [
        invalid(_STORED, stored, f"must have the storage version {version.get('name')}")
        for version in versions
        if version.get("storage") and version.get("name") not in stored
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
        if schema and not any(same(found, former) for former in known):
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
