"""The response to a configuration that would change fields of others."""

from __future__ import annotations

from koordinator.cluster.errors import ApiError
from koordinator.cluster.managed_fields.elements import path_text
from koordinator.cluster.managed_fields.managers import Identity
from koordinator.cluster.managed_fields.updater import Conflicts, conflicting_paths

_REASON = "FieldManagerConflict"


def conflict_error(conflicts: Conflicts) -> ApiError:
    """409, with one cause for each field."""
    found = [(who, path_text(path)) for who, path in conflicting_paths(conflicts)]
    causes = [{"reason": _REASON, "message": f"conflict with {who.shown()}", "field": field} for who, field in found]
    return ApiError(409, "Conflict", _message(found), {"causes": causes})


def _message(found: list[tuple[Identity, str]]) -> str:
    if len(found) == 1:
        who, field = found[0]
        return f"Apply failed with 1 conflict: conflict with {who.shown()}: {field}"
    fields: dict[Identity, list[str]] = {}
    for who, field in found:
        fields.setdefault(who, []).append(field)
    lines = [
        line
        for who, owned in fields.items()
        for line in (f"conflicts with {who.shown()}:", *(f"- {field}" for field in owned))
    ]
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
