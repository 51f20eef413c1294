"""Plugins of nodes: TaintNodesByCondition, and PodTopologyLabels, which shows pods where their node is."""

from __future__ import annotations

from typing import Final

from koordinator.cluster.admission.chain import Plugin
from koordinator.cluster.verbs.environment import Attributes

_NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_COPIED: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class TaintNodesByCondition(Plugin):
    """No pod is placed on a new node before it is ready. Runs where a controller takes the taint away again."""

    name = "TaintNodesByCondition"
    resources = (("", "nodes"),)

    async def mutate(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        taints = attributes.obj["spec"].get("taints") or []
        if not any(all(taint.get(name) == text for name, text in _NOT_READY.items()) for taint in taints):
            attributes.obj["spec"]["taints"] = [*taints, dict(_NOT_READY)]


class PodTopologyLabels(Plugin):
    """A pod that gets a node is given the node's zone and region as labels."""

    name = "PodTopologyLabels"
    resources = (("", "pods"),)
    subresources = ("", "binding")

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        assert obj is not None
        if attributes.target.subresource == "binding":
            destination = obj.get("target") or {}
            name = destination.get("name") if destination.get("kind") == "Node" else ""
        else:
            name = obj["spec"].get("nodeName")
        node = attributes.context.lookup("", "nodes", None, name) if name else None
        labels = (node or {"metadata": {}})["metadata"].get("labels") or {}
        copied = {key: labels[key] for key in _COPIED if key in labels}
        if copied:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **copied}
