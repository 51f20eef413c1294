"""``/debug/explain/...``: what ``koord explain`` asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordinator.base.services import ServiceError
from koordinator.kube.services import Services
from koordinator.scheduler.explain import Sources, explain_node, explain_pod

POD_PATH = "/debug/explain/:namespace/:name"
NODE_PATH = "/debug/explain-node/:name"


def add_explanations(services: Services, sources: Sources) -> None:
    """Explain pods and nodes from ``sources``."""

    def pod(parameters: Mapping[str, str]) -> Any:
        namespace, name = parameters["namespace"], parameters["name"]
        document = explain_pod(sources, namespace, name)
        if document is None:
            raise ServiceError(
                404,
                f"pod {namespace}/{name} is not in the queue, not on a node and was not tried lately by this instance: "
                "it does not exist, has finished, or names another scheduler in spec.schedulerName",
            )
        return document

    def node(parameters: Mapping[str, str]) -> Any:
        document = explain_node(sources, parameters["name"])
        if document is None:
            raise ServiceError(404, f"there is no node {parameters['name']}")
        return document

    services.add(POD_PATH, pod)
    services.add(NODE_PATH, node)
