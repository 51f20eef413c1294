"""What koord-manager answers to ``koord audit``: records of modifications, and how far they can be relied on to be all
that there were. See ``modification`` for the record, and ``explanations`` for how versions of answers differ."""

from __future__ import annotations

from koordinator.api.explanations import Explanation, ExplanationPart
from koordinator.api.modification import Modification
from koordinator.api.timestamps import Time


class Gap(ExplanationPart):
    """A time of which records may be missing, and why."""

    since: Time
    until: Time
    why: str = ""


class Coverage(ExplanationPart):
    """What the answer can be taken to cover."""

    since: Time | None = None
    """From when on records were kept; None where nothing was kept yet."""
    gaps: list[Gap] = []
    dropped: int = 0
    """Records that were deleted early, because the store was full."""
    refused: int = 0
    """Events that claimed to carry a record that could not be taken."""
    problem: str = ""
    """Why nothing can be kept right now; empty if it can."""


class KeptRecord(ExplanationPart):
    """A record with the name of the Event that carried it."""

    event: str
    """``namespace/name``."""
    record: Modification


class AuditAnswer(Explanation, kw_only=True):
    """A page of records, the newest first."""

    records: list[KeptRecord] = []
    next: str = ""
    """Where the next page begins; empty at the end."""
    coverage: Coverage = Coverage()
