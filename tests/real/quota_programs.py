"""The original koord-manager as a program and our handlers in this process, asked the same about quotas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonpatch

from koordinator.api.document import Document, copied
from koordinator.base.feature_gates import parse_gates
from koordinator.base.metrics import Metrics
from koordinator.manager.features import make_features
from koordinator.manager.webhook.dispatch import Webhook
from koordinator.manager.webhook.elastic_quota.settings import QuotaSettings
from koordinator.manager.webhook.elastic_quota.validating import QuotaPodCheck
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.pod.enhanced_rules import no_rules
from koordinator.manager.webhook.pod.validating import PodValidatingHandler
from tests.manager.webhook.elastic_quota.quota_bench import Pod, QuotaBench
from tests.manager.webhook.reviews import answered, at_once, review
from tests.model.quota_tree.quota_objects import P
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import create, install, prepare
from tests.real.manager_process import manager
from tests.real.original_webhooks import Original
from tests.real.programs import RealPrograms
from tests.real.quota_cases import BUSY, NAMESPACES, PODS, QUOTAS, Step, delete

_RESOURCE = {"group": "scheduling.sigs.k8s.io", "version": "v1alpha1", "resource": "elasticquotas"}
_QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/elasticquotas"


@dataclass(frozen=True)
class Programs:
    """Both of them, asked the same in the same order."""

    original: Original
    bench: QuotaBench
    ours: dict[str, Webhook]

    def send(self, step: Step) -> tuple[Document, Document]:
        """Our response and the original's."""
        body = body_of(step)
        return at_once(self.ours[step.path].respond(body)), answered(self.original.send(step.path, body))


@contextmanager
def quota_cluster(programs: RealPrograms, folder: Path) -> Iterator[ControlPlane]:
    """A real API server with QUOTAS and PODS in it."""
    with ControlPlane(programs.kubernetes, folder) as plane:
        prepare(plane)
        for name in NAMESPACES:
            create(plane, "/api/v1/namespaces", {"metadata": {"name": name}})
        for document in QUOTAS:
            stored = {key: value for key, value in document.items() if key != "status"}
            create(plane, _QUOTAS.format(document["metadata"]["namespace"]), stored)
        for document in PODS:
            create(plane, f"/api/v1/namespaces/{document['metadata']['namespace']}/pods", document)
        yield plane


@contextmanager
def both_programs(programs: RealPrograms, plane: ControlPlane, folder: Path, gates: str = "") -> Iterator[Programs]:
    """``gates`` are written as for ``--feature-gates``. Both know QUOTAS and PODS, and nothing else of quotas."""
    install(plane)
    command = (str(programs.original / "koord-manager"),)
    arguments = ["--enable-leader-election=false", *([f"--feature-gates={gates}"] if gates else [])]
    with manager(command, plane.kubeconfig, folder, arguments=arguments) as process:
        process.wait_ready()
        original = Original(process)
        try:
            process.wait(lambda: _is_filled(original), "quotas and pods in its memory")
            yield Programs(original, *our_program(gates))
        finally:
            original.close()
        process.stop()


def our_program(gates: str = "") -> tuple[QuotaBench, dict[str, Webhook]]:
    features = make_features()
    if gates:
        features.set(parse_gates(gates))
    settings = QuotaSettings.from_gates(features)
    bench = QuotaBench(settings)
    bench.observe(*QUOTAS)
    metadata = [pod["metadata"] for pod in PODS]
    bench.pods.pods = [Pod(each["namespace"], each["name"], each["labels"].get(f"{P}/name", "")) for each in metadata]
    pods = PodValidatingHandler(no_rules, (QuotaPodCheck(bench.quotas, settings),))
    metrics = WebhookMetrics(Metrics())
    handlers = (bench.validating, bench.mutating, pods)
    return bench, {handler.path: Webhook(handler, metrics, bench.clock) for handler in handlers}


def _is_filled(original: Original) -> bool:
    """Refusals that need all of them, and leave nothing behind."""
    shown = json.loads(original.send("/elasticQuota"))
    if set(shown["quotaInfoMap"]) != {document["metadata"]["name"] for document in QUOTAS}:
        return False
    deletion = answered(original.send(delete("", BUSY).path, body_of(delete("", BUSY))))
    return "1 child pods" in deletion["status"]["message"]


def body_of(step: Step) -> bytes:
    metadata = (step.object or step.old or {})["metadata"]
    more: dict[str, Any] = {} if step.path.endswith("-pod") else {"resource": _RESOURCE}
    names = {"name": metadata.get("name", ""), "namespace": metadata.get("namespace", "default")}
    return review(operation=step.operation, object=step.object, oldObject=step.old, **names, **more)


def decision(response: Document, *, words: bool) -> tuple[Any, ...]:
    status = response["status"]
    return response["allowed"], status["code"], status.get("message", "") if words else ""


def patched(step: Step, response: Document) -> Document:
    """The object of the step as the response leaves it."""
    document: Document = jsonpatch.JsonPatch(response.get("patch") or []).apply(copied(step.object))
    return document


def filled(step: Step, response: Document) -> Document | None:
    """The labels and annotations as the response leaves them; None for a refusal."""
    if not response["allowed"]:
        return None
    metadata = patched(step, response)["metadata"]
    return {key: metadata.get(key) or {} for key in ("labels", "annotations")}
