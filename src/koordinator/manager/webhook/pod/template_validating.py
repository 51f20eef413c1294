"""``/validate-pod-template``: warns of typing mistakes in the pod templates of workloads, and refuses nothing.

The pods are made by a controller, which shows nobody the warnings that it gets; who applies the workload sees these.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from koordinator.manager.webhook.admission import (
    ALLOWED,
    UNMEASURED,
    AdmissionRequest,
    AdmissionResponse,
    Steps,
    content,
)
from koordinator.model.typing_mistakes import new_mistakes

_PLUGIN: Final = "TypingMistakes"


class PodTemplateValidatingHandler:
    """``quotas``: the names of the quotas that there are."""

    path = "/validate-pod-template"

    def __init__(self, quotas: Collection[str], steps: Steps = UNMEASURED) -> None:
        self._quotas = quotas
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Raises DecodeError for a request without an object."""
        if request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
            return ALLOWED
        with self._steps.step(request.operation, _PLUGIN):
            warnings = new_mistakes(content(request.object), request.old_object, self._quotas)
        return AdmissionResponse(warnings=warnings) if warnings else ALLOWED
