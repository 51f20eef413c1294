"""The same questions about quotas to the original koord-manager and to our handlers, one after the other.

The original runs as a program against a real API server that holds a few quotas and pods; ours answers in this process.
"""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jsonpatch
import pytest

from koordinator.api.document import Document, copied
from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.base.metrics import Metrics
from koordinator.manager.webhook.dispatch import Webhook
from koordinator.manager.webhook.elastic_quota.pod_check import QuotaPodCheck
from koordinator.manager.webhook.elastic_quota.settings import QuotaSettings
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.pod.enhanced_rules import EnhancedRules
from koordinator.manager.webhook.pod.validating import PodValidatingHandler
from koordinator.manager.webhook.quota_page import quota_summary
from tests.manager.webhook.elastic_quota.quota_bench import Pod, QuotaBench
from tests.manager.webhook.reviews import answered, review
from tests.model.quota_tree.quota_objects import P
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import create, install, prepare
from tests.real.manager_process import ManagerProcess, manager
from tests.real.programs import RealPrograms
from tests.real.quota_cases import (
    BUSY,
    NAMESPACES,
    PASSES_WITH_THE_ORIGINAL,
    PASSES_WITH_US,
    PODS,
    QUOTAS,
    STEPS,
    Step,
    delete,
)

_RESOURCE = {"group": "scheduling.sigs.k8s.io", "version": "v1alpha1", "resource": "elasticquotas"}
_QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/elasticquotas"


@dataclass(frozen=True)
class Programs:
    """Both of them, asked the same in the same order."""

    original: ManagerProcess
    bench: QuotaBench
    ours: dict[str, Webhook]

    def ask_original(self, path: str, body: bytes | None = None) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        url = f"https://127.0.0.1:{self.original.webhook_port}{path}"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            found: bytes = answer.read()
        return found

    def ask(self, step: Step) -> tuple[Document, Document]:
        """Our response and the original's."""
        body = body_of(step)
        return answered(self.ours[step.path].answer(body)), answered(self.ask_original(step.path, body))


def our_program() -> tuple[QuotaBench, dict[str, Webhook]]:
    bench = QuotaBench()
    bench.observe(*QUOTAS)
    metadata = [pod["metadata"] for pod in PODS]
    bench.pods.pods = [Pod(each["namespace"], each["name"], each["labels"].get(f"{P}/name", "")) for each in metadata]
    pods = PodValidatingHandler(EnhancedRules(), (QuotaPodCheck(bench.expected, QuotaSettings()),))
    metrics = WebhookMetrics(Metrics())
    handlers = (bench.validating, bench.mutating, pods)
    return bench, {handler.path: Webhook(handler, metrics, bench.clock) for handler in handlers}


@pytest.fixture(scope="module")
def programs(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    folder = tmp_path_factory.mktemp("quota-admission")
    plane = ControlPlane(real_programs.kubernetes, folder / "control-plane")
    plane.start()
    try:
        _fill(plane)
        command = (str(real_programs.original / "koord-manager"),)
        with manager(
            command, plane.kubeconfig, folder / "original", arguments=("--enable-leader-election=false",)
        ) as original:
            original.wait_ready()
            both = Programs(original, *our_program())
            original.wait(lambda: _is_filled(both), "quotas and pods in its memory")
            yield both
            original.stop()
    finally:
        plane.stop()


def _fill(plane: ControlPlane) -> None:
    prepare(plane)
    for name in NAMESPACES:
        create(plane, "/api/v1/namespaces", {"metadata": {"name": name}})
    for document in QUOTAS:
        stored = {key: value for key, value in document.items() if key != "status"}
        create(plane, _QUOTAS.format(document["metadata"]["namespace"]), stored)
    for document in PODS:
        create(plane, f"/api/v1/namespaces/{document['metadata']['namespace']}/pods", document)
    install(plane)


def _is_filled(programs: Programs) -> bool:
    """Refusals that need all of them, and leave nothing behind."""
    shown = json.loads(programs.ask_original("/elasticQuota"))
    if set(shown["quotaInfoMap"]) != {document["metadata"]["name"] for document in QUOTAS}:
        return False
    deletion = answered(programs.ask_original(delete("", BUSY).path, body_of(delete("", BUSY))))
    return "1 child pods" in deletion["status"]["message"]


def body_of(step: Step) -> bytes:
    metadata = (step.object or step.old or {})["metadata"]
    more: dict[str, Any] = {} if step.path.endswith("-pod") else {"resource": _RESOURCE}
    names = {"name": metadata.get("name", ""), "namespace": metadata.get("namespace", "default")}
    return review(operation=step.operation, object=step.object, oldObject=step.old, **names, **more)


def verdict(response: Document, *, words: bool) -> tuple[Any, ...]:
    status = response["status"]
    return response["allowed"], status["code"], status.get("message", "") if words else ""


def filled(step: Step, response: Document) -> Document | None:
    """The labels and annotations as the response leaves them; None for a refusal."""
    if not response["allowed"]:
        return None
    document = jsonpatch.JsonPatch(response.get("patch") or []).apply(copied(step.object))
    return {key: document["metadata"].get(key) or {} for key in ("labels", "annotations")}


def test_every_question_is_answered_as_the_original_does(programs: Programs) -> None:
    ours: dict[str, Any] = {}
    original: dict[str, Any] = {}
    for step in STEPS:
        our_response, original_response = programs.ask(step)
        for answers, response in ((ours, our_response), (original, original_response)):
            shown = filled(step, response) if step.operation == "CREATE" else None
            answers[step.name] = (verdict(response, words=step.same_words), shown)
    assert ours == original


def test_the_page_shows_what_the_original_shows(programs: Programs) -> None:
    original = json.loads(programs.ask_original("/elasticQuota"))
    ours = quota_summary(programs.bench.expected.tree())
    assert ours["quotaInfoMap"] == original["quotaInfoMap"]
    # The original forgets the children of the root when the root is created, and keeps parents that nobody names.
    children = {name: found for name, found in ours["quotaHierarchyInfo"].items() if name != ROOT_QUOTA}
    assert children == {name: sorted(original["quotaHierarchyInfo"][name]) for name in children}


@pytest.mark.parametrize("step", PASSES_WITH_US, ids=lambda step: str(step.name))
def test_what_passes_that_the_original_refuses(programs: Programs, step: Step) -> None:
    ours, original = programs.ask(step)
    assert (ours["allowed"], original["allowed"]) == (True, False)


@pytest.mark.parametrize("step", PASSES_WITH_THE_ORIGINAL, ids=lambda step: str(step.name))
def test_what_the_original_lets_pass_is_refused(programs: Programs, step: Step) -> None:
    ours, original = programs.ask(step)
    assert (ours["allowed"], original["allowed"]) == (False, True)
