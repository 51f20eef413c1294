"""The same AdmissionReviews to the original koord-manager and to our handlers: patched objects and refusals alike.

The original runs as a program against a real API server that holds the profiles; ours responds in this process.
"""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.canonical import canonicalize
from koordinator.api.kubernetes_types.table import named
from koordinator.api.meta import ObjectMeta
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.manager.webhook.admission import AdmissionHandler
from koordinator.manager.webhook.dispatch import Webhook
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.pod.binding import BindingAdmissionHandler, BindingAdmissionSettings
from koordinator.manager.webhook.pod.mutating import PodMutatingHandler
from koordinator.manager.webhook.pod.validating import PodValidatingHandler, PodValidationSettings
from koordinator.manager.webhook.reservation.mutating import ReservationMutatingHandler
from tests.manager.webhook.installed import mutating, validating
from tests.manager.webhook.reviews import answered, at_once, review
from tests.manager.webhook.small_cluster import NoQuotaTrees, SmallCluster
from tests.real.admission_cases import (
    BINDINGS,
    BOUND_PODS,
    DIFFERENT_MUTATIONS,
    DIFFERENT_VALIDATIONS,
    MUTATIONS,
    NAMESPACES,
    PRIORITY_CLASSES,
    VALIDATIONS,
    Binding,
    Mutation,
    Validation,
)
from tests.real.control_plane import ControlPlane
from tests.real.manager_process import ManagerProcess, manager
from tests.real.programs import RealPrograms

_DEFINITIONS = Path(__file__).resolve().parents[2] / "config/crd"
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
_ARGUMENTS = (
    "--enable-leader-election=false",
    "--feature-gates=ReservationMutatingWebhook=true,ValidatePodDeviceResource=true,BindingAdmissionWebhook=true",
    "--binding-admission-user-name=koord-scheduler",
    "--binding-admission-namespaces=colocated",
)
_BINDING = BindingAdmissionSettings(user_names=("koord-scheduler",), namespaces=("colocated",))
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_POD = named("io.k8s.api.core.v1.Pod")


def profiles() -> list[Document]:
    """Those of all cases."""
    found = []
    for case in MUTATIONS:
        for number, given in enumerate(case.profiles):
            spec = copied(given)
            annotations = spec.pop("annotations!", {})
            spec.setdefault("selector", {}).setdefault("matchLabels", {})["case"] = case.name
            metadata = {"name": f"{case.name}-{number}", "annotations": annotations}
            found.append({"kind": "ClusterColocationProfile", "metadata": metadata, "spec": spec})
    return found


def priority_classes() -> list[Document]:
    return [
        {
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        for name, value in PRIORITY_CLASSES.items()
    ]


def create(plane: ControlPlane, path: str, document: Document) -> None:
    status, reply = plane.request("POST", path, document)
    assert status == 201, reply


@dataclass(frozen=True)
class Programs:
    """Both of them, as functions from a path and a review to its response."""

    original: ManagerProcess
    ours: dict[str, Webhook]

    def send_to_original(self, path: str, body: bytes) -> dict[str, Any]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        url = f"https://127.0.0.1:{self.original.webhook_port}{path}"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30, context=context) as reply:
            return answered(reply.read())

    def send_to_ours(self, path: str, body: bytes) -> dict[str, Any]:
        return at_once(self.ours[path].respond(body))


def pod_metadata(namespace: str, name: str) -> ObjectMeta | None:
    labels = BOUND_PODS.get(name) if namespace == "colocated" else None
    return None if labels is None else ObjectMeta(name=name, labels=labels)


def our_webhooks() -> dict[str, Webhook]:
    cluster = SmallCluster(*profiles())
    cluster.namespaces.update(NAMESPACES)
    for document in priority_classes():
        cluster.add_priority_class(document)
    handlers: list[AdmissionHandler] = [
        PodMutatingHandler(cluster, NoQuotaTrees(), lambda: 0),
        PodValidatingHandler(settings=PodValidationSettings(device_resources=True)),
        ReservationMutatingHandler(cluster, lambda: 0),
        BindingAdmissionHandler(_BINDING, pod_metadata, lambda decision, request: None),
    ]
    metrics = WebhookMetrics(Metrics())
    return {handler.path: Webhook(handler, metrics, ManualClock()) for handler in handlers}


@pytest.fixture(scope="module")
def programs(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    folder = tmp_path_factory.mktemp("admission")
    with ControlPlane(real_programs.kubernetes, folder / "control-plane") as plane:
        _fill(plane)
        command = (str(real_programs.original / "koord-manager"),)
        with manager(command, plane.kubeconfig, folder / "original", arguments=_ARGUMENTS) as original:
            original.wait_ready()
            both = Programs(original, our_webhooks())
            # The program reads each kind only when it is requested the first time.
            original.wait(lambda: _is_filled(both), "profiles in its memory")
            yield both
            original.stop()


def _fill(plane: ControlPlane) -> None:
    for path in sorted(_DEFINITIONS.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            create(plane, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document)
    for name, labels in {"koordinator-system": {}, **NAMESPACES}.items():
        create(plane, "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    for document in priority_classes():
        create(plane, _CLASSES, document)
    for document in profiles():
        create(plane, _PROFILES, {"apiVersion": "config.koordinator.sh/v1alpha1", **document})
    for name, labels in BOUND_PODS.items():
        spec = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
        create(plane, "/api/v1/namespaces/colocated/pods", {"metadata": {"name": name, "labels": labels}, "spec": spec})
    create(plane, f"{_REGISTRATION}/mutatingwebhookconfigurations", mutating())
    create(plane, f"{_REGISTRATION}/validatingwebhookconfigurations", validating())


def _is_filled(programs: Programs) -> bool:
    profiled = next(case for case in MUTATIONS if case.name == "always")
    refused = next(case for case in BINDINGS if case.name == "other-user")
    return (
        "patch" in programs.send_to_original("/mutate-pod", body_of(profiled))
        and not programs.send_to_original("/validate-pod-binding", body_of_binding(refused))["allowed"]
    )


def body_of(case: Mutation) -> bytes:
    document = copied(case.object)
    document["metadata"]["labels"]["case"] = case.name
    if document["kind"] == "Pod":
        return review(object=document, namespace=document["metadata"]["namespace"])
    resource = {"group": "scheduling.koordinator.sh", "version": "v1alpha1", "resource": "reservations"}
    return review(object=document, namespace="", resource=resource)


def body_of_validation(case: Validation) -> bytes:
    operation = "CREATE" if case.old is None else "UPDATE"
    return review(object=case.object, oldObject=case.old, operation=operation, namespace="colocated")


def body_of_binding(case: Binding) -> bytes:
    metadata = {"name": case.pod, "namespace": case.namespace}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": "n"}}
    return review(object=binding, subResource="binding", userInfo={"username": case.user}, **metadata)


def decision(response: dict[str, Any]) -> tuple[bool, int, str]:
    return response["allowed"], response["status"]["code"], response["status"].get("message", "")


def outcome(body: bytes, response: dict[str, Any]) -> dict[str, Any]:
    """What the API server does with a response: a refusal with its code, or an object in its one form."""
    if not response["allowed"]:
        return {"refused": response["status"]["code"]}
    document = jsonpatch.JsonPatch(response.get("patch", [])).apply(json.loads(body)["request"]["object"])
    if document["kind"] == "Pod":
        canonicalize(document, _POD)
    return {"object": without_empty(document)}


def without_empty(value: Any) -> Any:
    """Go writes the zero values of some fields that nobody gave."""
    if isinstance(value, dict):
        cleaned = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if item not in ({}, [], "", None)}
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    return value


@pytest.mark.parametrize("case", MUTATIONS, ids=lambda case: str(case.name))
def test_objects_become_what_the_original_makes_of_them(programs: Programs, case: Mutation) -> None:
    path = "/mutate-pod" if case.object["kind"] == "Pod" else "/mutate-reservation"
    body = body_of(case)
    ours = outcome(body, programs.send_to_ours(path, body))
    assert ours == outcome(body, programs.send_to_original(path, body))


@pytest.mark.parametrize("case", VALIDATIONS, ids=lambda case: str(case.name))
def test_pods_are_refused_in_the_words_of_the_original(programs: Programs, case: Validation) -> None:
    body = body_of_validation(case)
    ours, original = programs.send_to_ours("/validate-pod", body), programs.send_to_original("/validate-pod", body)
    assert decision(ours) == decision(original)


@pytest.mark.parametrize("case", BINDINGS, ids=lambda case: str(case.name))
def test_bindings_are_refused_in_the_words_of_the_original(programs: Programs, case: Binding) -> None:
    body, path = body_of_binding(case), "/validate-pod-binding"
    ours, original = programs.send_to_ours(path, body), programs.send_to_original(path, body)
    assert decision(ours) == decision(original)
    assert ours["status"].get("reason") == original["status"].get("reason")


@pytest.mark.parametrize("case", DIFFERENT_VALIDATIONS, ids=lambda case: str(case.name))
def test_updates_pass_that_the_original_refuses(programs: Programs, case: Validation) -> None:
    body = body_of_validation(case)
    assert not programs.send_to_original("/validate-pod", body)["allowed"]
    assert programs.send_to_ours("/validate-pod", body)["allowed"]


@pytest.mark.parametrize("case", DIFFERENT_MUTATIONS, ids=lambda case: str(case.name))
def test_pods_are_changed_that_the_original_fails_on(programs: Programs, case: Mutation) -> None:
    body = body_of(case)
    assert outcome(body, programs.send_to_original("/mutate-pod", body)) == {"refused": 500}
    assert "patch" in programs.send_to_ours("/mutate-pod", body)


def test_patches_say_nothing_but_what_changes(programs: Programs) -> None:
    case = next(case for case in MUTATIONS if case.name == "spark")
    patch = programs.send_to_ours("/mutate-pod", body_of(case))["patch"]
    assert all(operation["path"].startswith(("/metadata/", "/spec/")) for operation in patch)
    assert len(patch) <= len(programs.send_to_original("/mutate-pod", body_of(case))["patch"])
