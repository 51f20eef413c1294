"""TaintNodesByCondition: no pod is placed on a new node before it is ready."""

from __future__ import annotations

from typing import Final

from koordinator.cluster.admission.chain import Plugin
from koordinator.cluster.verbs.environment import Attributes

_NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class TaintNodesByCondition(Plugin):
    """Runs where a controller takes the taint away again."""

    name = "TaintNodesByCondition"
    resources = (("", "nodes"),)

    async def mutate(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        taints = attributes.obj["spec"].get("taints") or []
        if not any(all(taint.get(name) == text for name, text in _NOT_READY.items()) for taint in taints):
            attributes.obj["spec"]["taints"] = [*taints, dict(_NOT_READY)]
