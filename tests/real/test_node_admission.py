"""Random questions about nodes and SLO ConfigMaps to the original koord-manager and to our handlers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import jsonpatch
import pytest

from koordinator.api.annotations import RAW_ALLOCATABLE
from koordinator.api.codec import convert
from koordinator.api.document import Document, copied
from koordinator.api.meta import ObjectMeta
from koordinator.api.quantity import Quantity
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.manager.webhook.config_map.validating import ConfigMapValidatingHandler
from koordinator.manager.webhook.dispatch import Webhook
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.node.status_mutating import NodeStatusMutatingHandler
from koordinator.manager.webhook.node.validating import NodeValidatingHandler
from tests.manager.webhook.reviews import answered, at_once, review
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import NAMESPACE, create, install, prepare
from tests.real.manager_process import manager
from tests.real.node_questions import configurations, labels, node, status_updates
from tests.real.original_webhooks import Original
from tests.real.programs import RealPrograms

_COUNT = 300
_NAME = "slo-controller-config"
_GATES = "NodeMutatingWebhook=true,NodeValidatingWebhook=true,ConfigMapValidatingWebhook=true"
_NODES = {"a": {"xxx": "1", "yyy": "1"}, "b": {"yyy": "2", "zzz": "1"}, "c": {}}
_GROUPS = [
    {"name": "one", "nodeSelector": {"matchLabels": {"xxx": "1"}}},
    {"name": "two", "nodeSelector": {"matchLabels": {"yyy": "2"}}},
    {"name": "three", "nodeSelector": {"matchLabels": {"zzz": "1", "yyy": "1"}}},
]
_DATA = {"colocation-config": json.dumps({"enable": True, "nodeConfigs": _GROUPS})}


def config_map(data: Document) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _NAME, "namespace": NAMESPACE},
        "data": data,
    }


@dataclass(frozen=True)
class Programs:
    original: Original
    ours: dict[str, Webhook]

    def send(self, path: str, resource: str, **request: Any) -> tuple[Document, Document]:
        """Our response and the original's."""
        names = {"namespace": NAMESPACE if resource == "configmaps" else "", "name": "n"}
        body = review(resource={"group": "", "version": "v1", "resource": resource}, **names, **request)
        return at_once(self.ours[path].respond(body)), answered(self.original.send(path, body))


def our_program() -> dict[str, Webhook]:
    nodes = [convert({"name": name, "labels": found}, ObjectMeta) for name, found in _NODES.items()]
    handlers = (
        NodeStatusMutatingHandler(),
        NodeValidatingHandler(lambda: _DATA),
        ConfigMapValidatingHandler(NAMESPACE, _NAME, lambda: nodes),
    )
    metrics = WebhookMetrics(Metrics())
    return {handler.path: Webhook(handler, metrics, ManualClock()) for handler in handlers}


@pytest.fixture(scope="module")
def programs(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    folder = tmp_path_factory.mktemp("node-admission")
    with ControlPlane(real_programs.kubernetes, folder / "control-plane") as plane:
        prepare(plane)
        for name, found in _NODES.items():
            create(plane, "/api/v1/nodes", {"metadata": {"name": name, "labels": found}})
        create(plane, f"/api/v1/namespaces/{NAMESPACE}/configmaps", config_map(_DATA))
        install(plane)
        arguments = ("--enable-leader-election=false", f"--feature-gates={_GATES}")
        command = (str(real_programs.original / "koord-manager"),)
        with manager(command, plane.kubeconfig, folder / "original", arguments=arguments) as process:
            process.wait_ready()
            both = Programs(Original(process), our_program())
            process.wait(lambda: _knows_all(both), "nodes and the ConfigMap in its memory")
            yield both
            both.original.close()
            process.stop()


def _knows_all(programs: Programs) -> bool:
    """Refusals that need both."""
    overlapping = [{"name": str(index), "nodeSelector": {"matchLabels": each}} for index, each in enumerate(_OVER)]
    data = {"colocation-config": json.dumps({"nodeConfigs": overlapping})}
    of_nodes = programs.send("/validate-configmap", "configmaps", operation="CREATE", object=config_map(data))
    under_two = node({"xxx": "1", "yyy": "2"}, {})
    of_labels = programs.send(
        "/validate-node", "nodes", operation="UPDATE", object=under_two, oldObject=node({}, {}), subResource=""
    )
    return not any(each["allowed"] for each in (*of_nodes, *of_labels))


_OVER = ({"yyy": "2"}, {"zzz": "1"})


def reported(response: Document) -> tuple[Any, ...]:
    """What both have to agree in; where JSON or a number cannot be read, each has words of its own."""
    status = response["status"]
    return response["allowed"], status["code"]


def offered(response: Document, requested: Document) -> Any:
    """What the node offers and remembers then; bytes are whole."""
    stored = jsonpatch.JsonPatch(response.get("patch") or []).apply(copied(requested))
    amounts = {name: Quantity.parse(amount) for name, amount in (stored["status"].get("allocatable") or {}).items()}
    raw = stored["metadata"]["annotations"].get(RAW_ALLOCATABLE)
    return {name: amount.value if name == "memory" else amount for name, amount in amounts.items()}, raw


def test_random_reports_of_nodes_are_amplified_as_the_original_does(programs: Programs) -> None:
    amplified = 0
    for new, old in status_updates(seed=1, count=_COUNT):
        ours, original = programs.send(
            "/mutate-node-status", "nodes", operation="UPDATE", object=new, oldObject=old, subResource="status"
        )
        assert reported(ours) == reported(original), (new, old)
        if ours["allowed"]:
            assert offered(ours, new) == offered(original, new), (new, old)
            amplified += "patch" in ours
    assert _COUNT / 3 < amplified < _COUNT


def test_random_labels_of_nodes_are_decided_as_the_original_does(programs: Programs) -> None:
    random, refused = Random(2), 0
    for _ in range(_COUNT):
        new, old = node(labels(random), {}), node(labels(random), {})
        ours, original = programs.send("/validate-node", "nodes", operation="UPDATE", object=new, oldObject=old)
        assert (reported(ours), ours["status"].get("message")) == (
            reported(original),
            original["status"].get("message"),
        )
        refused += not ours["allowed"]
    assert refused > _COUNT / 20


def test_random_configurations_are_decided_as_the_original_does(programs: Programs) -> None:
    reasons: set[str] = set()
    for data in configurations(seed=3, count=_COUNT):
        requested = {"operation": "CREATE", "object": config_map(data)}
        ours, original = programs.send("/validate-configmap", "configmaps", **requested)
        assert (reported(ours), _reason(ours)) == (reported(original), _reason(original)), data
        reasons.add(_reason(ours))
    assert reasons == {"", "ParseConfigFail", "ConfigParamInvalid", "NodeStrategiesOverlap", "ExistNodeConfict"}


def _reason(response: Document) -> str:
    text = str(response["status"].get("message", ""))
    return str(json.loads(text.strip("_"))["reason"]) if text else ""
