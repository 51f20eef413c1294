"""What every local cluster has besides nodes: our CustomResourceDefinitions, the namespace, the priority classes, and a
configuration that switches colocation on."""

from __future__ import annotations

from typing import Any

import yaml

from koordinator.api.installation import NAMESPACE
from koordinator.api.kinds import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    PRIORITY_CLASSES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Kind,
)
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.manifests.installation import Installation, manifest_files
from koordinator.api.manifests.webhooks import webhook_configurations
from koordinator.cli.local_cluster.programs import shipped_file
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

_WEBHOOK_KINDS = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)


async def prepare(client: Client, *, with_webhooks: bool = True) -> None:
    """Create what is missing; definitions of an older version are brought up to date. Safe to repeat.

    ``with_webhooks``: koord-manager is to be asked about pods.
    """
    for definition in custom_resource_definitions():
        await _ensure(client, CUSTOM_RESOURCE_DEFINITIONS, definition, update=True)
    await _ensure(client, NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for text in manifest_files(Installation(), ("priority-classes",)).values():
        for document in yaml.safe_load_all(text):
            await _ensure(client, PRIORITY_CLASSES, document)
    if with_webhooks:
        for kind, configuration in zip(_WEBHOOK_KINDS, webhook_configurations(), strict=True):
            await _ensure(client, kind, _never_in_the_way(configuration))
    configuration = yaml.safe_load(shipped_file("slo-controller-config.yaml").read_text())
    await _ensure(client, CONFIG_MAPS, configuration, namespace=NAMESPACE)


def _never_in_the_way(configuration: dict[str, Any]) -> dict[str, Any]:
    """A local cluster is used without its manager, too: then nobody waits for an answer."""
    webhooks = [{**webhook, "failurePolicy": "Ignore"} for webhook in configuration["webhooks"]]
    return {**configuration, "webhooks": webhooks}


async def _ensure(
    client: Client, kind: Kind[Any], document: dict[str, Any], *, namespace: str = "", update: bool = False
) -> None:
    body = {"apiVersion": kind.api_version, "kind": kind.name, **document}
    try:
        await client.create(kind, body, namespace)
    except ApiStatusError as error:
        if not error.is_already_exists:
            raise
        if update:
            await client.patch(kind, document["metadata"]["name"], {"spec": document["spec"]}, PatchType.MERGE)
