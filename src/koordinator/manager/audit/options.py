"""How much the audit keeps, where, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from koordinator.base.option_flags import duration, integer, text

TITLE: Final = "Audit"


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The store of the leader."""

    directory: str = text(
        "audit-directory",
        "",
        "Keep the records of modifications, which koord audit queries, in a file in this directory, so that they "
        "survive a restart; empty: in memory.",
        placeholder="directory",
    )
    megabytes: int = integer(
        "audit-max-megabytes",
        64,
        "The space that they take; when it is full, the namespace whose records take most space loses its oldest. "
        "The disk needs twice as much. 0: keep none, and watch no Events.",
        minimum=0,
    )
    max_age: timedelta = duration("audit-max-age", timedelta(days=7), "Older records are deleted.")
