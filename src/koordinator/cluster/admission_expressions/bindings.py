"""What the names in expressions stand for, of one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.access.identity import User
from koordinator.cluster.access.rules import AccessRequest
from koordinator.cluster.admission_expressions.authorization import Check, Decide, ResourceCheck
from koordinator.cluster.admission_expressions.declarations import REQUEST_RESOURCE
from koordinator.model.cel.errors import EvaluationError
from koordinator.model.cel.library.conversions import timestamp_of

_TIMES: Final = ("creationTimestamp", "deletionTimestamp")


@dataclass(frozen=True, slots=True)
class Subject:
    """A request in the version that a policy or a webhook wants to see."""

    question: Document
    """``request`` of an AdmissionReview."""
    user: User
    decide: Decide
    namespace: Document | None = None

    def variables(self) -> dict[str, Any]:
        """Without ``params`` and ``variables``, which are those of a policy."""
        request = {name: value for name, value in self.question.items() if name not in ("object", "oldObject", "uid")}
        resource = request["requestResource"]
        asked = AccessRequest(
            "",
            group=resource.get("group") or "",
            resource=resource["resource"],
            subresource=request.get("requestSubResource") or "",
            namespace=request.get("namespace") or "",
            name=request.get("name") or "",
        )
        return {
            "object": self.question.get("object"),
            "oldObject": self.question.get("oldObject"),
            "request": request,
            "namespaceObject": _namespace(self.namespace),
            "authorizer": Check(self.user, self.decide),
            REQUEST_RESOURCE: ResourceCheck(self.user, self.decide, asked),
        }


def _namespace(document: Document | None) -> Document | None:
    """With times as such, as far as expressions may see them."""
    if document is None:
        return None
    metadata = {name: _time(value) if name in _TIMES else value for name, value in document["metadata"].items()}
    return {**document, "metadata": metadata}


def _time(text: str) -> Any:
    try:
        return timestamp_of(text)
    except EvaluationError:
        return None
