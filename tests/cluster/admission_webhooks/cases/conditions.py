"""Match conditions: which of the requests that the rules name a webhook hears of."""

from __future__ import annotations

from typing import Any

from tests.cluster.admission_webhooks.cases.objects import config_map
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster
from tests.cluster.admission_webhooks.webhook_server import deny, patch

_NAME = "a.example.com"


def _created(cluster: WebhookCluster, *expressions: str, kind: str = "validating", **fields: Any) -> list[str]:
    """What is said of three ConfigMaps where a webhook with these conditions refuses what it hears of."""
    cluster.server.behaviours["/deny"] = deny(message="heard")
    conditions = [{"name": f"c{index}", "expression": expression} for index, expression in enumerate(expressions)]
    cluster.register(kind, cluster.webhook(_NAME, "/deny", matchConditions=conditions, **fields))
    objects = (config_map("a"), config_map("b", x="1"), config_map("c", {"l": "m"}, x="2"))
    path = f"{cluster.path('configmaps')}?dryRun=All"
    return [cluster.request("POST", path, each).message.rpartition(": ")[2] for each in objects]


def case_a_condition_that_is_false_keeps_a_webhook_from_a_request(cluster: WebhookCluster) -> None:
    assert _created(cluster, "has(object.data) && object.data.x == '1'") == ["", "heard", ""]


def case_all_conditions_have_to_hold(cluster: WebhookCluster) -> None:
    assert _created(cluster, "has(object.data)", "has(object.metadata.labels)") == ["", "", "heard"]


def case_conditions_of_mutating_webhooks(cluster: WebhookCluster) -> None:
    assert _created(cluster, "object.metadata.name == 'b'", kind="mutating") == ["", "heard", ""]


def case_a_condition_on_the_request(cluster: WebhookCluster) -> None:
    condition = "request.operation == 'CREATE' && request.name == 'b' && oldObject == null"
    assert _created(cluster, condition) == ["", "heard", ""]


def case_a_condition_on_rights(cluster: WebhookCluster) -> None:
    condition = "authorizer.requestResource.check('delete').allowed() && object.metadata.name == 'b'"
    assert _created(cluster, condition) == ["", "heard", ""]


def case_a_condition_that_cannot_be_evaluated_refuses(cluster: WebhookCluster) -> None:
    found = _created(cluster, "object.data.x == '1'", "object.metadata.name != 'c'")
    assert found == ["data", "heard", ""]


def case_a_condition_that_cannot_be_evaluated_is_skipped(cluster: WebhookCluster) -> None:
    assert _created(cluster, "object.data.x == '1'", failurePolicy="Ignore") == ["", "heard", ""]


def case_conditions_see_what_webhooks_before_have_made(cluster: WebhookCluster) -> None:
    cluster.server.behaviours |= {
        "/patch": patch({"op": "add", "path": "/data", "value": {"x": "1"}}),
        "/deny": deny(message="heard"),
    }
    conditions = [{"name": "c", "expression": "object.data.x == '1'"}]
    cluster.register(
        "mutating",
        cluster.webhook("a.example.com", "/patch"),
        cluster.webhook("b.example.com", "/deny", matchConditions=conditions),
    )
    response = cluster.request("POST", cluster.path("configmaps"), config_map("a"))
    assert response.message == 'admission webhook "b.example.com" denied the request: heard'


def _refused(cluster: WebhookCluster, *conditions: Any) -> list[str]:
    webhook = cluster.webhook(_NAME, "/deny", matchConditions=list(conditions))
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?dryRun=All"
    response = cluster.request("POST", path, {"metadata": {"name": "conditions"}, "webhooks": [webhook]})
    causes = (response.body.get("details") or {}).get("causes") or []
    return [f"{cause['field']}: {cause['message']}" for cause in causes]


def case_conditions_that_are_no_expressions(cluster: WebhookCluster) -> None:
    field = "webhooks[0].matchConditions"
    found = _refused(
        cluster,
        {"name": "a", "expression": "1"},
        {"name": "a", "expression": "request.nothing"},
        {"name": "", "expression": ""},
    )
    assert found == [
        f'{field}[0].expression: Invalid value: "1": must evaluate to bool but got int',
        f'{field}[1].expression: Invalid value: "request.nothing": compilation failed: ERROR: <input>:1:8: '
        "undefined field 'nothing'\n | request.nothing\n | .......^",
        f'{field}[1].name: Duplicate value: "a"',
        f"{field}[2].expression: Required value",
        f"{field}[2].name: Required value",
    ]
