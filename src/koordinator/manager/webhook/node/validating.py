"""``/validate-node``: a node whose new labels would put it under two strategies of the SLO ConfigMap is refused.

Without this the first of the two would win and nobody would know why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from koordinator.api.codec import DecodeError
from koordinator.api.document import Document
from koordinator.api.meta import ObjectMeta
from koordinator.manager.webhook.admission import ALLOWED, AdmissionAnswer, AdmissionRequest
from koordinator.manager.webhook.steps import UNMEASURED, Steps
from koordinator.model.slo_configuration.admission_check import check_node_labels
from koordinator.model.slo_configuration.refusal import RefusedConfigurationError

_PLUGIN: Final = "SLOManagerConfigConflictForNode"


class NodeValidatingHandler:
    """A new node is never refused, since then there would be none: whoever registers it is warned."""

    path = "/validate-node"

    def __init__(self, configuration: Callable[[], Mapping[str, str] | None], steps: Steps = UNMEASURED) -> None:
        """``configuration`` gives the data of the SLO ConfigMap, None without one."""
        self._configuration = configuration
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionAnswer:
        """Raises RefusedConfigurationError."""
        if request.resource != "nodes" or request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
            return ALLOWED
        if not request.object:
            raise DecodeError("there is no content to decode")
        with self._steps.step(request.operation, _PLUGIN):
            return self._answer(request, request.object)

    def _answer(self, request: AdmissionRequest, node: Document) -> AdmissionAnswer:
        labels = _labels(node)
        if request.operation == "UPDATE" and labels == _labels(request.old_object or {}):
            return ALLOWED
        data = self._configuration()
        if data is None:
            return ALLOWED
        name = (node.get("metadata") or {}).get("name") or request.name
        try:
            check_node_labels(data, ObjectMeta(name=name, labels=labels))
        except RefusedConfigurationError as error:
            if request.operation == "UPDATE":
                raise
            return AdmissionAnswer(warnings=[f"more than one strategy of the SLO ConfigMap is for this node: {error}"])
        return ALLOWED


def _labels(node: Document) -> dict[str, str]:
    return (node.get("metadata") or {}).get("labels") or {}
