"""What koord-manager answers to ``koord audit``: records of modifications, and how far they can be relied on to be all
that there were. See ``modification`` for the record, and ``explanations`` for how versions of answers differ."""

from __future__ import annotations

from koordinator.api.explanations import Explanation, ExplanationPart
from koordinator.api.modification import Modification
from koordinator.api.timestamps import Time

AUDIT_PATH = "/audit/records"
"""Where koord-manager serves it."""


class Gap(ExplanationPart, kw_only=True):
    """A time of which records may be missing, and why."""

    since: Time
    until: Time
    why: str = ""


class Drop(ExplanationPart, kw_only=True):
    """Records of a namespace (empty: of objects without one) that were deleted because the store was full."""

    namespace: str
    records: int
    until: Time
    """The time of the youngest of them."""


class Coverage(ExplanationPart):
    """What an answer can be taken to cover."""

    since: Time | None = None
    """From when on records were kept; None where nothing has been kept yet."""
    gaps: list[Gap] = []
    drops: list[Drop] = []
    lost: int = 0
    """Records that came while nothing could be kept, since this replica leads, and were too many to wait."""
    refused: int = 0
    """Events that carried a record which could not be taken, since this replica leads."""
    in_memory: bool = False
    """Whether all is forgotten when koord-manager ends."""
    problem: str = ""
    """Why nothing can be kept right now; empty if it can."""


class KeptRecord(ExplanationPart, kw_only=True):
    """A record, and the Event that carried it."""

    event: str
    """``namespace/name``."""
    record: Modification


class AuditAnswer(Explanation, kw_only=True):
    """A page of records, the newest first."""

    records: list[KeptRecord] = []
    next: str = ""
    """Where the next page begins; empty at the end."""
    coverage: Coverage = Coverage()
