"""``/mutate-node-status``: what kubelet reports becomes what the node offers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from koordinator.api.document import Document
from koordinator.manager.webhook.admission import ALLOWED, AdmissionAnswer, AdmissionRequest, content
from koordinator.manager.webhook.node.amplification import amplify
from koordinator.manager.webhook.steps import UNMEASURED, Steps

_PLUGIN: Final = "NodeResourceAmplificationPlugin"
_CHANGED: Final[Mapping[str, str]] = MappingProxyType({"metadata": "annotations", "status": "allocatable"})
"""The members of parts of a node that may be changed."""


class NodeStatusMutatingHandler:
    """Changes updates of the status; everything else passes."""

    path = "/mutate-node-status"

    def __init__(self, steps: Steps = UNMEASURED) -> None:
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionAnswer:
        """Raises AmplificationError for annotations that cannot be read, and DecodeError for what is no node."""
        if request.resource != "nodes" or request.sub_resource != "status" or request.operation != "UPDATE":
            return ALLOWED
        reported = content(request.object)
        node = _writable(reported)
        with self._steps.step(request.operation, _PLUGIN):
            amplify(node, request.old_object)
        changed = any(node[part] != reported[part] for part in _CHANGED if part in node)
        return AdmissionAnswer(changed=node) if changed else ALLOWED


def _writable(node: Document) -> Document:
    """A copy of what may be changed; the rest, which lists every image of the node, is shared."""
    copy = dict(node)
    for part, member in _CHANGED.items():
        if isinstance(copy.get(part), dict):
            copy[part] = {**copy[part]}
            if isinstance(copy[part].get(member), dict):
                copy[part][member] = {**copy[part][member]}
    return copy
