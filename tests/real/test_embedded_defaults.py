"""The embedded API's defaults, refusals and patches beside those of the real kube-apiserver, object by object.

The recorded responses under tests/cluster say what v1.35 did; this asks the server that is here, so that a new version
of it shows up as a difference. Everything is a dry run.
"""

from __future__ import annotations

import copy
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, invalid
from koordinator.cluster.resource import Cause
from tests.cluster.corpus import NAMESPACE, admitted, comparable, context_of, in_namespace, resource_of, written
from tests.real.administrator import Administrator
from tests.real_world.pods import BATCH_CLASS, OVERHEAD_CLASS, PODS, PodShape

PRIORITY_CLASSES = "scheduling.k8s.io/v1/priorityclasses"
pytestmark = pytest.mark.real
Create = Callable[[Document], Document]


class _Server:
    """Dry-run creation over plain HTTP: kubectl would reword the responses."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self._root = config["clusters"][0]["cluster"]["server"]
        self._token = config["users"][0]["user"]["token"]
        # A test server on loopback with a certificate of its own making.
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    def create(self, document: Document, query: str = "?dryRun=All&fieldValidation=Ignore") -> Document:
        """The created object or the Status that refuses it."""
        resource = resource_of(document)
        root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
        scope = f"/namespaces/{NAMESPACE}" if resource.namespaced else ""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        url = f"{self._root}{root}{scope}/{resource.plural}{query}"
        request = urllib.request.Request(url, json.dumps(document).encode(), headers, method="POST")
        try:
            with urllib.request.urlopen(request, context=self._tls) as response:
                return _decoded(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return _decoded(error.read())


def _decoded(body: bytes) -> Document:
    document: Document = json.loads(body)
    return document


@pytest.fixture(scope="session")
def create(real_cluster: str | Path) -> Create:
    server = _Server(Path(real_cluster))
    server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, query="")
    administrator = Administrator.of(Path(real_cluster))
    for path, needed in (("node.k8s.io/v1/runtimeclasses", OVERHEAD_CLASS), (PRIORITY_CLASSES, BATCH_CLASS)):
        assert administrator.request("POST", f"/apis/{path}", needed)[0] in (201, 409)
    administrator.close()
    return server.create


@pytest.mark.parametrize(
    "given", written("strategy/objects.yaml"), ids=lambda d: f"{d['kind']}-{d['metadata']['name']}"
)
def test_created_object(create: Create, given: Document) -> None:
    real = create(given)
    ours = in_namespace(copy.deepcopy(given))
    if ours["kind"] == "Job":
        ours["metadata"]["uid"] = real["metadata"]["uid"]
    resource_of(ours).strategy.decode(ours)
    admitted(ours)
    assert comparable(ours) == comparable(real)


@pytest.mark.parametrize("shape", PODS, ids=lambda shape: shape.name)
def test_created_pod_as_people_have_them(create: Create, shape: PodShape) -> None:
    # A mirror pod without a node is refused.
    document = shape.document(NAMESPACE, node="somewhere" if shape.is_static else "")
    real = create(document)
    ours = in_namespace(copy.deepcopy(document))
    resource_of(ours).strategy.decode(ours)
    admitted(ours, about=context_of({"priorityclasses": [dict(BATCH_CLASS)], "runtimeclasses": [dict(OVERHEAD_CLASS)]}))
    assert comparable(ours) == comparable(real)


@pytest.mark.parametrize(
    "given", written("strategy/invalid.yaml"), ids=lambda d: f"{d['kind']}-{d['metadata']['name']}"
)
def test_refusal(create: Create, given: Document) -> None:
    resource = resource_of(given)
    ours = in_namespace(copy.deepcopy(given))
    real = create(given)
    try:
        resource.strategy.decode(ours)
        admitted(ours)
        causes = _in_order_of(real, resource.strategy.validate(ours, None))
        message = invalid(resource, ours["metadata"]["name"], causes).message
    except ApiError as error:
        message = error.message
    assert real["message"] == message


def _in_order_of(real: Document, causes: Sequence[Cause]) -> list[Cause]:
    """Our causes as the server happened to list them: it walks labels and other maps in random order."""
    listed = [(cause["field"], cause["message"]) for cause in real.get("details", {}).get("causes", ())]
    return sorted(causes, key=lambda c: listed.index((c.field, c.message)) if (c.field, c.message) in listed else -1)
