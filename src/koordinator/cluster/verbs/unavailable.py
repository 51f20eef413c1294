"""Subresources of which this cluster has nothing to show: those that a kubelet would serve.

A client that requests the logs of a simulated pod must learn that there are none, and not that a path is unknown: that
would read as an error of the client or of the address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, bad_request, not_found
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.target import Target

_SIMULATED_RUNTIME: Final = "simulated://"
_KUBELET_NEEDED: Final[Mapping[str, tuple[str, str]]] = {
    "log": ("there are no logs; kubectl describe shows its status and events", "fetch the logs of"),
    "exec": ("no command can run in it", "run a command in"),
    "attach": ("there is nothing to attach to", "attach to"),
    "portforward": ("there is no port to forward to", "forward a port to"),
    "proxy": ("there is no port to forward to", "forward requests to"),
}
"""Subresource of pods -> (what follows from having no containers, what a kubelet would have to do)."""

Explanation = Callable[[Environment, Target, Document], str]
"""From the object of the request to why there is no response."""


def explain_unavailable(environment: Environment, target: Target) -> ApiError | None:
    """The refusal of a request for such a subresource: 404 when its object is absent; None for all other requests."""
    subresource = target.subresource.partition("/")[0]
    explain = _EXPLANATIONS.get((target.resource.group, target.resource.plural, subresource))
    if explain is None:
        return None
    if subresource == "proxy":
        target = msgspec.structs.replace(target, name=_without_port(target.name))
    obj = environment.lookup(target.resource.group, target.resource.plural, target.namespace, target.name)
    if obj is None:
        return not_found(target.resource, target.name)
    error = bad_request(explain(environment, msgspec.structs.replace(target, subresource=subresource), obj))
    error.details = {"name": target.name, "kind": target.resource.plural}
    return error


def has_empty_log(environment: Environment, target: Target) -> bool:
    """Whether the request is for the log of a pod that has no node yet: it is there, and has no line."""
    if (target.resource.group, target.resource.plural, target.subresource) != ("", "pods", "log"):
        return False
    pod = environment.lookup("", "pods", target.namespace, target.name)
    return pod is not None and not pod["spec"].get("nodeName")


def _of_pod(environment: Environment, target: Target, pod: Document) -> str:
    node_name = pod["spec"].get("nodeName")
    consequence, request = _KUBELET_NEEDED[target.subresource]
    if not node_name:
        return f"pod {target.name} does not have a host assigned"
    node = environment.lookup("", "nodes", None, node_name) if node_name else None
    if node_name and not _is_simulated(node):
        source = f' from node "{node_name}"' if target.subresource == "log" else f' on node "{node_name}"'
        return f'this API server connects to no kubelet, so it cannot {request} pod "{target.name}"{source}'
    return f'pod "{target.name}" is simulated: it has no containers, so {consequence}'


def _of_node(environment: Environment, target: Target, node: Document) -> str:
    if _is_simulated(node):
        return f'node "{target.name}" is simulated: it has no kubelet to forward to'
    return f'this API server connects to no kubelet, so it cannot forward requests to node "{target.name}"'


def _of_service(environment: Environment, target: Target, service: Document) -> str:
    return f'this API server forwards no requests, so it cannot reach service "{target.name}"'


def _is_simulated(node: Document | None) -> bool:
    """Also of a pod whose node is gone: its containers are gone as well."""
    if node is None:
        return True
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return str(info.get("containerRuntimeVersion") or "").startswith(_SIMULATED_RUNTIME)


def _without_port(name: str) -> str:
    """``p``, ``p:80`` and ``https:p:80`` all name p."""
    parts = name.split(":")
    return parts[1] if len(parts) == 3 else parts[0]


_EXPLANATIONS: Final[Mapping[tuple[str, str, str], Explanation]] = {
    **{("", "pods", subresource): _of_pod for subresource in _KUBELET_NEEDED},
    ("", "nodes", "proxy"): _of_node,
    ("", "services", "proxy"): _of_service,
}
"""(group, plural, subresource) -> why there is none."""
