"""CertificateSigningRequests: the server says who asks; approval and status change what is theirs alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from koordinator.api.document import Document
from koordinator.api.timestamps import format_time
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy.causes import required
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.table import AGE, NAME, NONE, computed, human_duration, table, text

_REQUESTER: Final = ("username", "uid", "groups", "extra")
_DECISIONS: Final = ("Approved", "Denied", "Failed")


def _duration(obj: Document) -> str:
    seconds = obj["spec"].get("expirationSeconds")
    return NONE if seconds is None else human_duration(timedelta(seconds=seconds))


def _condition(obj: Document) -> str:
    status = obj.get("status") or {}
    found = {condition.get("type") for condition in status.get("conditions") or []}
    texts = [decision for decision in _DECISIONS if decision in found] or ["Pending"]
    return ",".join([*texts, "Issued"] if status.get("certificate") else texts)


_TABLE: Final = table(
    NAME,
    AGE,
    text("SignerName", "spec.signerName", absent=NONE),
    text("Requestor", "spec.username"),
    computed("RequestedDuration", _duration),
    computed("Condition", _condition),
)


class CertificateRequestStrategy(ObjectStrategy):
    """The spec never changes after the creation."""

    def __init__(self) -> None:
        super().__init__(
            "certificates.k8s.io/v1",
            "CertificateSigningRequest",
            namespaced=False,
            status=True,
            table=_TABLE,
            field_labels={"spec.signerName": lambda obj: obj["spec"].get("signerName") or ""},
        )

    def initialize(self, obj: Document, context: RequestContext) -> None:
        spec = obj["spec"]
        for name in _REQUESTER:
            spec.pop(name, None)
        spec |= context.user.document()

    def carry_over(self, obj: Document, old: Document, context: RequestContext) -> None:
        obj["spec"] = old["spec"]

    def prepare_status_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        super().prepare_status_update(obj, old, context)
        _set_times(obj, old, context.now)

    def approve(self, obj: Document, old: Document, context: RequestContext) -> None:
        """Takes over the conditions, and nothing else in the status."""
        conditions = obj["status"].get("conditions")
        obj["status"] = {**old["status"], **({"conditions": conditions} if conditions else {})}
        self.prepare_status_update(obj, old, context)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        return [required(f"spec.{name}") for name in ("request", "usages", "signerName") if not obj["spec"].get(name)]


def _set_times(obj: Document, old: Document, now: datetime) -> None:
    """When a condition was written, and when its status has changed, unless its author says so."""
    before = {each.get("type"): each for each in (old.get("status") or {}).get("conditions") or []}
    for condition in obj["status"].get("conditions") or []:
        known = before.get(condition.get("type")) or {}
        same = known.get("status") == condition.get("status")
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = format_time(now)
        if not condition.get("lastTransitionTime"):
            since = known.get("lastTransitionTime") if same else None
            condition["lastTransitionTime"] = since or format_time(now)
