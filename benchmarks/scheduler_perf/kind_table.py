"""Where the objects of templates are served."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.scheduler_perf.templates import Document
from koordinator.api import kinds
from koordinator.api.kinds import Kind
from koordinator.base.errors import ConfigurationError

_KINDS: Final[dict[tuple[str, str], Kind[Any]]] = {
    (kind.api_version, kind.name): kind for kind in vars(kinds).values() if isinstance(kind, Kind)
}


def kind_of(document: Document) -> Kind[Any]:
    """Raises ConfigurationError for a kind that nothing here reads or writes."""
    named = (document.get("apiVersion", ""), document.get("kind", ""))
    if named not in _KINDS:
        allowed = f"one of {', '.join(sorted(f'{version} {kind}' for version, kind in _KINDS))}"
        raise ConfigurationError("a template's kind", " ".join(named), allowed)
    return _KINDS[named]
