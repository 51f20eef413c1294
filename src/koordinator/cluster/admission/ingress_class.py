"""DefaultIngressClass: an Ingress that names no class gets the default one."""

from __future__ import annotations

from typing import Final

from koordinator.cluster.admission.chain import Plugin
from koordinator.cluster.strategy.traffic_rules import OLD_INGRESS_CLASS
from koordinator.cluster.verbs.environment import Attributes

_NETWORKING: Final = "networking.k8s.io"
_IS_DEFAULT: Final = "ingressclass.kubernetes.io/is-default-class"


class DefaultIngressClass(Plugin):
    """Of several defaults that which was made last, and then the first by name."""

    name = "DefaultIngressClass"
    resources = ((_NETWORKING, "ingresses"),)

    async def mutate(self, attributes: Attributes) -> None:
        ingress = attributes.obj
        assert ingress is not None
        is_named = ingress["spec"].get("ingressClassName") is not None
        if is_named or OLD_INGRESS_CLASS in (ingress["metadata"].get("annotations") or {}):
            return
        found = [each["metadata"] for each in attributes.context.list_objects(_NETWORKING, "ingressclasses")]
        marked = [each for each in found if (each.get("annotations") or {}).get(_IS_DEFAULT) == "true"]
        newest = max((each.get("creationTimestamp") or "" for each in marked), default="")
        names = [each["name"] for each in marked if (each.get("creationTimestamp") or "") == newest]
        if names:
            ingress["spec"]["ingressClassName"] = min(names)
