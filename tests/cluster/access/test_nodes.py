"""Kubelets where the Node authorizer decides: what belongs to their node is theirs, and nothing else."""

from __future__ import annotations

import pytest

from koordinator.cluster.access.authorizer import AuthorizationMode
from tests.cluster.access.node_cases import OBJECTS
from tests.cluster.access.rbac_server import run
from tests.cluster.embedded import ApiClient, HttpResponse

CORE = "/api/v1/namespaces/default"
MERGE = "application/merge-patch+json"


async def _prepared(client: ApiClient) -> None:
    for path, body in OBJECTS:
        await client.post(path, body)


async def _as_kubelet(client: ApiClient, method: str, path: str, body: object = None, node: str = "a") -> HttpResponse:
    headers = {"Impersonate_User": f"system:node:{node}", "Impersonate_Group": "system:nodes"}
    content_type = MERGE if method == "PATCH" else "application/json"
    return await client.request(method, path, body, content_type=content_type, **headers)


@pytest.fixture(scope="module")
def readable() -> dict[str, tuple[int, int]]:
    """Path -> how the kubelets of a and b are answered."""
    names = ("secrets/mounted", "secrets/csi", "secrets/other", "configmaps/settings", "persistentvolumeclaims/claim")
    paths = [*(f"{CORE}/{name}" for name in names), "/api/v1/persistentvolumes/volume", "/api/v1/nodes/a"]

    async def scenario(client: ApiClient) -> dict[str, tuple[int, int]]:
        await _prepared(client)
        return {
            path.rpartition("/")[2]: (
                (await _as_kubelet(client, "GET", path)).status,
                (await _as_kubelet(client, "GET", path, node="b")).status,
            )
            for path in paths
        }

    return run(scenario, authorization_mode=AuthorizationMode.NODE_RBAC)


@pytest.mark.parametrize("name", ["mounted", "csi", "settings", "claim", "volume", "a"])
def test_what_its_pods_refer_to_is_read_by_the_kubelet_of_the_node_alone(
    readable: dict[str, tuple[int, int]], name: str
) -> None:
    assert readable[name] == (200, 403)


def test_what_no_pod_refers_to_is_read_by_no_kubelet(readable: dict[str, tuple[int, int]]) -> None:
    assert readable["other"] == (403, 403)


def test_the_graph_follows_pods() -> None:
    async def scenario(client: ApiClient) -> list[int]:
        await _prepared(client)
        secret, found = f"{CORE}/secrets/other", []
        found.append((await _as_kubelet(client, "GET", secret)).status)
        volume = {"name": "s", "secret": {"secretName": "other"}}
        spec = {"nodeName": "a", "volumes": [volume], "containers": [{"name": "c", "image": "i"}]}
        await client.post(f"{CORE}/pods", {"metadata": {"name": "new"}, "spec": spec})
        found.append((await _as_kubelet(client, "GET", secret)).status)
        await client.request("DELETE", f"{CORE}/pods/new", {"gracePeriodSeconds": 0})
        found.append((await _as_kubelet(client, "GET", secret)).status)
        return found

    assert run(scenario, authorization_mode=AuthorizationMode.NODE_RBAC) == [403, 200, 403]


def test_a_kubelet_changes_its_own_node_within_bounds() -> None:
    async def scenario(client: ApiClient) -> list[tuple[int, str]]:
        await _prepared(client)
        changes = (("a", {"own": "y"}), ("a", {"node-restriction.kubernetes.io/x": "y"}), ("b", {"own": "y"}))
        responses = [
            await _as_kubelet(client, "PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
            for name, labels in changes
        ]
        return [(response.status, response.body.get("message") or "") for response in responses]

    assert run(scenario, authorization_mode=AuthorizationMode.NODE_RBAC) == [
        (200, ""),
        (403, 'nodes "a" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/x'),
        (403, 'nodes "b" is forbidden: node "a" is not allowed to modify node "b"'),
    ]
