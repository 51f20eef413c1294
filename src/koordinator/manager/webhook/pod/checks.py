"""What a check of a pod looks at, and what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.pod import Pod
from koordinator.manager.webhook.admission import AdmissionRequest


@dataclass(frozen=True, slots=True)
class PodReview:
    """A pod that is created, or what an update makes of it."""

    pod: Pod
    old: Pod | None
    """None when the pod is created."""
    namespace: str
    dry_run: bool = False
    """Nothing will be stored, so nothing may be remembered."""


class PodCheck(Protocol):
    """One reason for refusing pods."""

    plugin: str
    """Its name in metrics."""

    def problems(self, review: PodReview) -> Sequence[str]:
        """What is wrong, in the words that the user sees; nothing for a pod that may pass."""
        ...


def pod_review(request: AdmissionRequest) -> PodReview:
    """Raises DecodeError for what is no pod."""
    pod = convert(request.object, Pod)
    return PodReview(
        pod=pod,
        old=_old_pod(request.old_object),
        namespace=pod.metadata.namespace or request.namespace,
        dry_run=request.dry_run,
    )


def is_terminating(review: PodReview) -> bool:
    """Whether the update is one of a pod that is being deleted, such as the removal of a finalizer."""
    return review.old is not None and review.old.metadata.deletion_timestamp is not None


def joined(problems: Sequence[str]) -> str:
    """As Kubernetes joins errors: each once, in brackets when there are several."""
    distinct = list(dict.fromkeys(problems))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def new_problems(found: Sequence[str], before: Sequence[str]) -> list[str]:
    """Those that the update brings. What was wrong before and stays as it was is no reason to refuse it."""
    return [problem for problem in found if problem not in before]


def _old_pod(document: Document | None) -> Pod | None:
    return convert(document, Pod) if document is not None else None
