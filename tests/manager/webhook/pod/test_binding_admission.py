"""Who may bind pods while schedulers are exchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from koordinator.api.meta import ObjectMeta
from koordinator.manager.webhook.admission import AdmissionRequest
from koordinator.manager.webhook.pod.binding import BindingAdmissionHandler, BindingAdmissionSettings

ENFORCED = BindingAdmissionSettings(user_names=("koord-scheduler",), namespaces=("*",))
REQUEST = AdmissionRequest(
    operation="CREATE",
    group="",
    version="v1",
    resource="pods",
    sub_resource="binding",
    namespace="default",
    name="a",
    user_name="system:serviceaccount:kube-system:old-scheduler",
)
PLAIN = ObjectMeta(name="a")


def decided(
    settings: BindingAdmissionSettings, request: AdmissionRequest = REQUEST, metadata: ObjectMeta | None = PLAIN
) -> tuple[bool, list[str]]:
    counted: list[str] = []
    handler = BindingAdmissionHandler(
        settings, lambda namespace, name: metadata, lambda decision, request: counted.append(decision)
    )
    return handler.handle(request).allowed, counted


def test_another_scheduler_is_denied() -> None:
    counted: list[str] = []
    handler = BindingAdmissionHandler(
        ENFORCED, lambda namespace, name: PLAIN, lambda decision, request: counted.append(decision)
    )
    response = handler.handle(REQUEST)
    assert (response.allowed, response.code, response.reason) == (False, 403, "Forbidden")
    assert response.message == "binding denied: username is not in the allowed list"
    assert counted == ["denied"]


@pytest.mark.parametrize(
    ("settings", "decision"),
    [
        (ENFORCED, "denied"),
        (replace(ENFORCED, user_names=()), None),
        (replace(ENFORCED, user_names=("other", "old-sched")), "allowed_username"),
        (replace(ENFORCED, excluded_namespaces=("default",)), "excluded_ns"),
        (replace(ENFORCED, namespaces=()), None),
        (replace(ENFORCED, namespaces=("other",)), "out_of_scope"),
        (replace(ENFORCED, namespaces=("other", "default")), "denied"),
        (replace(ENFORCED, namespaces=("*", "other")), "out_of_scope"),
        (replace(ENFORCED, dry_run=True), "dry_run"),
    ],
)
def test_settings(settings: BindingAdmissionSettings, decision: str | None) -> None:
    assert decided(settings) == (decision != "denied", [decision] if decision else [])


@pytest.mark.parametrize(
    ("metadata", "decision"),
    [
        (None, None),
        (ObjectMeta(labels={"koordinator.sh/binding-admission-bypass": ""}), "bypass_label"),
        (ObjectMeta(annotations={"example.com/delegated": "no"}), "bypass_annotation"),
        (ObjectMeta(labels={"example.com/delegated": "no"}), "denied"),
    ],
)
def test_the_pod(metadata: ObjectMeta | None, decision: str | None) -> None:
    settings = replace(ENFORCED, bypass_annotations=("example.com/delegated",))
    assert decided(settings, metadata=metadata) == (decision != "denied", [decision] if decision else [])


@pytest.mark.parametrize(
    "request_",
    [replace(REQUEST, sub_resource=""), replace(REQUEST, operation="UPDATE"), replace(REQUEST, resource="nodes")],
)
def test_only_bindings_are_looked_at(request_: AdmissionRequest) -> None:
    assert decided(ENFORCED, request_) == (True, [])
