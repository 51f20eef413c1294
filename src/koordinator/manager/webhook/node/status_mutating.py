"""``/mutate-node-status``: what kubelet reports becomes what the node offers."""

from __future__ import annotations

from typing import Final

from koordinator.api.codec import DecodeError
from koordinator.api.document import copied
from koordinator.manager.webhook.admission import ALLOWED, AdmissionAnswer, AdmissionRequest
from koordinator.manager.webhook.node.amplification import amplify
from koordinator.manager.webhook.steps import UNMEASURED, Steps

_PLUGIN: Final = "NodeResourceAmplificationPlugin"


class NodeStatusMutatingHandler:
    """Changes updates of the status; everything else passes."""

    path = "/mutate-node-status"

    def __init__(self, steps: Steps = UNMEASURED) -> None:
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionAnswer:
        """Raises AmplificationError for annotations that cannot be read."""
        if request.resource != "nodes" or request.sub_resource != "status" or request.operation != "UPDATE":
            return ALLOWED
        if not request.object:
            raise DecodeError("there is no content to decode")
        node = copied(request.object)
        with self._steps.step(request.operation, _PLUGIN):
            amplify(node, request.old_object)
        return AdmissionAnswer(changed=node) if node != request.object else ALLOWED
