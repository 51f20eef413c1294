"""What a request is answered when its handler fails, and what is counted."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from koordinator.api.codec import DecodeError
from koordinator.base.clock import ManualClock
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.manager.webhook.admission import ALLOWED, AdmissionRequest, AdmissionResponse
from koordinator.manager.webhook.dispatch import Webhook
from koordinator.manager.webhook.metrics import MUTATE, StepTimer, WebhookMetrics
from tests.manager.webhook.reviews import Handler, at_once, review

QUOTAS = {"group": "scheduling.sigs.k8s.io", "version": "v1alpha1", "resource": "elasticquotas"}


def raising(error: Exception) -> Any:
    def respond(request: AdmissionRequest) -> AdmissionResponse:
        raise error

    return respond


def reviewed(path: str, respond: Any, body: bytes, metrics: Metrics | None = None) -> dict[str, Any]:
    webhook = Webhook(Handler(path, respond), WebhookMetrics(metrics or Metrics()), ManualClock())
    return at_once(webhook.respond(body))


@pytest.mark.parametrize(
    ("path", "error", "request_", "code"),
    [
        ("/mutate-pod", KoordinatorError("no such class"), {}, 500),
        ("/validate-pod", KoordinatorError("no such class"), {}, 400),
        ("/mutate-elasticquota", KoordinatorError("no such class"), {"resource": QUOTAS}, 400),
        ("/mutate-pod", DecodeError("no such class"), {}, 400),
        ("/mutate-pod", ValueError("no such class"), {}, 500),
        ("/validate-pod", RecursionError("no such class"), {}, 500),
    ],
)
def test_an_error_becomes_the_code_of_the_original(
    path: str, error: Exception, request_: dict[str, Any], code: int
) -> None:
    response = reviewed(path, raising(error), review(**request_))
    assert not response["allowed"]
    assert (response["uid"], response["status"]["code"]) == ("705ab4f5", code)
    assert "no such class" in response["status"]["message"]


def test_the_text_of_an_expected_error_is_given_as_it_is() -> None:
    response = reviewed("/validate-pod", raising(KoordinatorError("spec.priority: too high")), review())
    assert response["status"]["message"] == "spec.priority: too high"


def test_an_error_that_nobody_foresaw_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    with caplog.at_level(logging.ERROR):
        response = reviewed("/mutate-pod", raising(ZeroDivisionError("oh")), review(), metrics)
    assert response["status"]["message"] == "panic: ZeroDivisionError: oh [recovered]"
    assert "ZeroDivisionError" in caplog.text
    assert "controller_runtime_webhook_panics_total 1.0" in exposition(metrics)


def test_a_response_that_cannot_be_written_is_an_error_as_well() -> None:
    body = review(operation="DELETE", object=None)
    assert reviewed("/mutate-pod", lambda _: AdmissionResponse(changed={}), body)["status"]["code"] == 500
    assert (
        reviewed("/mutate-pod", lambda _: AdmissionResponse(changed={"a": object()}), review())["status"]["code"] == 500
    )


def test_what_cannot_be_read_is_refused_without_asking_the_handler() -> None:
    handler = Handler("/mutate-pod", lambda _: ALLOWED)
    response = at_once(Webhook(handler, WebhookMetrics(Metrics()), ManualClock()).respond(b"{"))
    assert not response["allowed"]
    assert response["status"]["code"] == 400
    assert handler.requests == []


def test_each_request_is_counted_under_its_path() -> None:
    metrics = Metrics()
    reviewed("/validate-pod", lambda _: ALLOWED, review(), metrics)
    text = exposition(metrics)
    assert 'controller_runtime_webhook_requests_total{code="200",webhook="/validate-pod"} 1.0' in text
    assert 'controller_runtime_webhook_latency_seconds_count{webhook="/validate-pod"} 1.0' in text


def test_steps_are_measured_with_the_original_s_labels() -> None:
    metrics = Metrics()
    timer = StepTimer(WebhookMetrics(metrics), ManualClock(), MUTATE, "pod")
    with timer.step("CREATE", "ExtendedResourceSpec"):
        pass
    with pytest.raises(KoordinatorError), timer.step("CREATE", "DeviceResourceSpec"):
        raise KoordinatorError
    text = exposition(metrics)
    for plugin, status in (("ExtendedResourceSpec", "allowed"), ("DeviceResourceSpec", "rejected")):
        labels = (
            f'{{object_type="pod",operation="CREATE",plugin_name="{plugin}",status="{status}",webhook_type="mutate"}}'
        )
        assert f"koord_manager_webhook_webhook_duration_milliseconds_count{labels} 1.0" in text


def exposition(metrics: Metrics) -> str:
    return metrics.exposition()[0].decode()
