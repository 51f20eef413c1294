"""Who manages which field after random writes of several managers: the embedded API agrees with kube-apiserver."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from koordinator.cluster.server import ServerOptions
from tests.cluster.admission_webhooks.api_server import ApiServer
from tests.cluster.embedded_thread import embedded_server
from tests.cluster.managed_fields.sequences import (
    DEFINITION,
    GROUP,
    Deployments,
    Gadgets,
    Kind,
    Write,
    comparable,
    writes,
)

pytestmark = pytest.mark.real
_WRITES = 40
_OPTIONS = ServerOptions(disruption_controller=False, garbage_collector=False)


@pytest.fixture(scope="module")
def servers(real_cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ApiServer, ApiServer]]:
    with embedded_server(tmp_path_factory.mktemp("embedded"), _OPTIONS) as kubeconfig:
        both = ApiServer(real_cluster), ApiServer(kubeconfig)
        for server in both:
            server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
            _await(server, f"/apis/{GROUP}/v2/gadgets")
        yield both


def _await(server: ApiServer, path: str) -> None:
    end = time.monotonic() + 20
    while server.request("GET", path).code != 200:
        assert time.monotonic() < end, f"{path} is not served"
        time.sleep(0.1)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", [Gadgets(), Deployments()], ids=["custom-resource", "deployment"])
def test_sequence(servers: tuple[ApiServer, ApiServer], kind: Kind, seed: int) -> None:
    namespace = f"applied-{uuid.uuid4().hex[:8]}"
    for server in servers:
        assert server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}).code == 201
    done: list[str] = []
    for write in writes(kind, Random(seed), _WRITES):
        done.append(str(write))
        real, ours = (_written(server, namespace, kind, write) for server in servers)
        assert ours == real, "\n".join(done[-6:])


def _written(server: ApiServer, namespace: str, kind: Kind, write: Write) -> Any:
    version, _, path = write.path.partition(" ")
    collection = f"/apis/{version}/namespaces/{namespace}/{kind.plural}"
    body = write.body
    if write.method == "PUT":
        current = server.request("GET", f"{collection}/x").body
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": current["metadata"]["resourceVersion"]}}
    response = server.request(write.method, f"{collection}/{path}", body, media=write.media)
    stored = server.request("GET", f"{collection}/x").body
    for found in (stored, response.body):
        found.get("metadata", {}).pop("namespace", None)
    return comparable(response.body), comparable(stored)
