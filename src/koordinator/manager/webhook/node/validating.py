"""``/validate-node``: a node whose new labels would put it under two strategies of the SLO ConfigMap is refused.

Without this the first of the two would win without a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.meta import ObjectMeta
from koordinator.manager.webhook.admission import (
    ALLOWED,
    UNMEASURED,
    AdmissionRequest,
    AdmissionResponse,
    Steps,
    content,
)
from koordinator.model.slo_configuration.admission_check import check_node_labels
from koordinator.model.slo_configuration.refusal import RefusedConfigurationError

_PLUGIN: Final = "SLOManagerConfigConflictForNode"


class NodeValidatingHandler:
    """A new node is never refused, since then there would be none: its creator gets a warning."""

    path = "/validate-node"

    def __init__(self, configuration: Callable[[], Mapping[str, str] | None], steps: Steps = UNMEASURED) -> None:
        """``configuration`` gives the data of the SLO ConfigMap, None without one."""
        self._configuration = configuration
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Raises RefusedConfigurationError, and DecodeError for what is no node."""
        if request.resource != "nodes" or request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
            return ALLOWED
        node = content(request.object)
        with self._steps.step(request.operation, _PLUGIN):
            return self._respond(request, node)

    def _respond(self, request: AdmissionRequest, node: Document) -> AdmissionResponse:
        metadata = _metadata(node)
        if request.operation == "UPDATE" and metadata.labels == _metadata(request.old_object or {}).labels:
            return ALLOWED
        data = self._configuration()
        if data is None:
            return ALLOWED
        name = metadata.name or request.name
        try:
            check_node_labels(data, ObjectMeta(name=name, labels=metadata.labels))
        except RefusedConfigurationError as error:
            if request.operation == "UPDATE":
                raise
            return AdmissionResponse(
                warnings=[f"more than one strategy of the SLO ConfigMap is for this node: {error}"]
            )
        return ALLOWED


def _metadata(node: Document) -> ObjectMeta:
    return convert(node.get("metadata") or {}, ObjectMeta)
