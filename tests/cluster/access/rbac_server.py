"""A server that decides by roles, asked as anybody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from koordinator.api.document import Document
from koordinator.cluster.access.authorizer import AuthorizationMode
from koordinator.cluster.access.policy import RBAC_GROUP
from koordinator.cluster.server import ServerOptions
from tests.cluster.embedded import ApiClient, HttpResponse, embedded_api

T = TypeVar("T")
RBAC = f"/apis/{RBAC_GROUP}/v1"
ROLES, BINDINGS = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"
CLUSTER_ROLES, CLUSTER_BINDINGS = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
PODS = "/api/v1/namespaces/default/pods"


def run(scenario: Callable[[ApiClient], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        async with embedded_api(replace(ServerOptions(authorization_mode=AuthorizationMode.RBAC), **options)) as client:
            return await scenario(client)

    return asyncio.run(main())


async def ask(client: ApiClient, user: str, method: str, path: str, body: Any = None) -> HttpResponse:
    """As ``kubectl --as`` does."""
    return await client.request(method, path, body, Impersonate_User=user)


def rule(verbs: str, resources: str, group: str = "", *names: str) -> Document:
    found: Document = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**found, "resourceNames": list(names)} if names else found


def role(name: str, *rules: Document, **labels: str) -> Document:
    return {"metadata": {"name": name, "labels": labels}, "rules": list(rules)}


def binding(name: str, kind: str, to: str, *users: str) -> Document:
    subjects = [{"kind": "User", "name": user, "apiGroup": RBAC_GROUP} for user in users]
    reference = {"apiGroup": RBAC_GROUP, "kind": kind, "name": to}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}


async def grant(client: ApiClient, user: str, *rules: Document, cluster: bool = False) -> None:
    """A role of its own for the user, in the namespace default or in the cluster."""
    roles, bindings = (CLUSTER_ROLES, CLUSTER_BINDINGS) if cluster else (ROLES, BINDINGS)
    await client.post(roles, role(f"of-{user}", *rules))
    await client.post(bindings, binding(f"of-{user}", "ClusterRole" if cluster else "Role", f"of-{user}", user))


async def until_role(client: ApiClient, name: str, holds: Callable[[Document], bool]) -> Document:
    """The ClusterRole as soon as it is so."""
    async with client.watch(f"{CLUSTER_ROLES}?fieldSelector=metadata.name={name}") as events:
        async for event in events:
            if holds(event["object"]):
                found: Document = event["object"]
                return found
    raise AssertionError("the watch ended")
