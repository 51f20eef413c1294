"""What every local cluster has besides nodes: our CustomResourceDefinitions, the namespace, the priority classes."""

from __future__ import annotations

from typing import Any

import yaml

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PRIORITY_CLASSES, Kind
from koordinator.api.manifests import custom_resource_definitions
from koordinator.cli.local_cluster.programs import shipped_file
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

SYSTEM_NAMESPACE = "koordinator-system"


async def prepare(client: Client) -> None:
    """Create what is missing; definitions of an older version are brought up to date. Safe to repeat."""
    for definition in custom_resource_definitions():
        await _ensure(client, CUSTOM_RESOURCE_DEFINITIONS, definition, update=True)
    await _ensure(client, NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
    for document in yaml.safe_load_all(shipped_file("priority-classes.yaml").read_text()):
        await _ensure(client, PRIORITY_CLASSES, document)


async def _ensure(client: Client, kind: Kind[Any], document: dict[str, Any], *, update: bool = False) -> None:
    body = {"apiVersion": kind.api_version, "kind": kind.name, **document}
    try:
        await client.create(kind, body)
    except ApiStatusError as error:
        if not error.is_already_exists:
            raise
        if update:
            await client.patch(kind, document["metadata"]["name"], {"spec": document["spec"]}, PatchType.MERGE)
