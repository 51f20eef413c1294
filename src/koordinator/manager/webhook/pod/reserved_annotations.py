"""Annotations that only the scheduler gives, to the pods that it makes up in place of Reservations."""

from __future__ import annotations

from typing import Final

from koordinator.api.annotations import RESERVE_POD
from koordinator.api.field_error import FieldError
from koordinator.api.pod import Pod
from koordinator.manager.webhook.pod.checks import PodReview, new_problems

_RESERVED: Final = (RESERVE_POD,)


class ReservedAnnotations:
    plugin = "ClusterReservation"

    def problems(self, review: PodReview) -> list[str]:
        return new_problems(_problems(review.pod), _problems(review.old) if review.old is not None else ())


def _problems(pod: Pod) -> list[str]:
    return [
        str(FieldError.forbidden(f"annotations.{name}", "cannot set in annotations"))
        for name in _RESERVED
        if name in pod.metadata.annotations
    ]
