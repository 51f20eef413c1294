"""Webhook configurations as objects: defaults, what is refused, and that they never pass webhooks themselves."""

from __future__ import annotations

from typing import Any

from tests.cluster.admission_webhooks.api_server import HttpResponse
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster, rule
from tests.cluster.admission_webhooks.webhook_server import Document, deny

_ROOT = "/apis/admissionregistration.k8s.io/v1"
_KINDS = {
    "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
    "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
}


def _webhook(**fields: Any) -> Document:
    webhook = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/path"},
        "rules": [rule("never", groups="never.example.com")],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        **fields,
    }
    return {name: value for name, value in webhook.items() if value is not None}


def _create(
    cluster: WebhookCluster, *webhooks: Document, plural: str = "mutatingwebhookconfigurations"
) -> HttpResponse:
    return cluster.request("POST", f"{_ROOT}/{plural}?dryRun=All", {"metadata": {"name": "c"}, "webhooks": webhooks})


def case_defaults_of_a_mutating_webhook(cluster: WebhookCluster) -> None:
    response = _create(cluster, _webhook(clientConfig={"service": {"namespace": "n", "name": "s"}}))
    assert response.code == 201
    assert response.body["metadata"]["generation"] == 1
    assert response.body["webhooks"] == [
        {
            "name": "a.example.com",
            "clientConfig": {"service": {"namespace": "n", "name": "s", "port": 443}},
            "rules": [{**rule("never", groups="never.example.com"), "scope": "*"}],
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "admissionReviewVersions": ["v1"],
            "reinvocationPolicy": "Never",
        }
    ]


def case_defaults_of_a_validating_webhook(cluster: WebhookCluster) -> None:
    response = _create(cluster, _webhook(), plural="validatingwebhookconfigurations")
    assert response.code == 201
    assert "reinvocationPolicy" not in response.body["webhooks"][0]


def case_a_configuration_is_refused_with_the_field(cluster: WebhookCluster) -> None:
    """Each of these is one fault; ``{kind}`` stands for the kind's name."""
    for fields, detail in _FAULTS:
        for plural, kind in _KINDS.items():
            if "reinvocationPolicy" in fields and kind.startswith("Validating"):
                continue
            response = _create(cluster, _webhook(**fields), plural=plural)
            expected = f'{kind}.admissionregistration.k8s.io "c" is invalid: {detail}'
            assert (response.code, response.message) == (422, expected)


_AT = "webhooks[0]"
_LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_URL_FORM = "; desired format: https://host[/path]"
_FAULTS: list[tuple[Document, str]] = [
    ({"name": ""}, f"{_AT}.name: Required value"),
    (
        {"name": "a.example"},
        f'{_AT}.name: Invalid value: "a.example": should be a domain with at least three segments separated by dots',
    ),
    ({"sideEffects": None}, f"{_AT}.sideEffects: Required value: must specify one of None, NoneOnDryRun"),
    (
        {"sideEffects": "Some"},
        f'{_AT}.sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
    ),
    (
        {"timeoutSeconds": 31},
        f"{_AT}.timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
    ),
    (
        {"timeoutSeconds": 0},
        f"{_AT}.timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds",
    ),
    (
        {"failurePolicy": "Maybe"},
        f'{_AT}.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"',
    ),
    (
        {"matchPolicy": "Some"},
        f'{_AT}.matchPolicy: Unsupported value: "Some": supported values: "Equivalent", "Exact"',
    ),
    (
        {"reinvocationPolicy": "Always"},
        f'{_AT}.reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"',
    ),
    (
        {"admissionReviewVersions": []},
        f"{_AT}.admissionReviewVersions: Required value: must specify one of v1, v1beta1",
    ),
    (
        {"admissionReviewVersions": ["v2"]},
        f'{_AT}.admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1',
    ),
    (
        {"admissionReviewVersions": ["v1", "v1"]},
        f'{_AT}.admissionReviewVersions[1]: Invalid value: "v1": duplicate version',
    ),
    ({"clientConfig": {}}, f"{_AT}.clientConfig: Required value: exactly one of url or service is required"),
    (
        {"clientConfig": {"url": "https://a", "service": {"namespace": "n", "name": "s"}}},
        f"{_AT}.clientConfig: Required value: exactly one of url or service is required",
    ),
    (
        {"clientConfig": {"url": "http://a"}},
        f"{_AT}.clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme{_URL_FORM}",
    ),
    (
        {"clientConfig": {"url": "https:///a"}},
        f'{_AT}.clientConfig.url: Invalid value: "": host must be specified{_URL_FORM}',
    ),
    (
        {"clientConfig": {"url": "https://u@a/"}},
        f'{_AT}.clientConfig.url: Invalid value: "u": user information is not permitted in the URL',
    ),
    (
        {"clientConfig": {"url": "https://a/#f"}},
        f'{_AT}.clientConfig.url: Invalid value: "f": fragments are not permitted in the URL',
    ),
    (
        {"clientConfig": {"url": "https://a/?q=1"}},
        f'{_AT}.clientConfig.url: Invalid value: "q=1": query parameters are not permitted in the URL',
    ),
    (
        {"clientConfig": {"service": {"namespace": "", "name": "s"}}},
        f"{_AT}.clientConfig.service.name: Required value",  # sic
    ),
    (
        {"clientConfig": {"service": {"namespace": "n", "name": "s", "port": 0}}},
        f"{_AT}.clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
    ),
    (
        {"clientConfig": {"service": {"namespace": "n", "name": "s", "path": "p"}}},
        f"[{_AT}.clientConfig.service.path: Invalid value: \"p\": must start with a '/', "
        f'{_AT}.clientConfig.service.path: Invalid value: "p": segment[0] may not be empty]',
    ),
    (
        {"clientConfig": {"service": {"namespace": "n", "name": "s", "path": "/a//b"}}},
        f'{_AT}.clientConfig.service.path: Invalid value: "/a//b": segment[1] may not be empty',
    ),
    ({"rules": [rule("x", "RUN")]}, _AT + '.rules[0].operations[0]: Unsupported value: "RUN": supported values: '
        '"*", "CONNECT", "CREATE", "DELETE", "UPDATE"'),
    (
        {"rules": [rule("x", "* CREATE")]},
        f"{_AT}.rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: "
        "if '*' is present, must not specify other operations",
    ),
    ({"rules": [{"operations": ["*"], "apiGroups": ["a"], "apiVersions": ["v1"]}]},
        f"{_AT}.rules[0].resources: Required value"),
    ({"rules": [{"operations": ["*"], "apiGroups": [], "apiVersions": ["v1"], "resources": ["a"]}]},
        f"{_AT}.rules[0].apiGroups: Required value"),
    (
        {"rules": [rule("* pods")]},
        f"{_AT}.rules[0].resources: Invalid value: [\"*\",\"pods\"]: "
        "if '*' is present, must not specify other resources without subresources",
    ),
    (
        {"rules": [rule("pods/* pods/status")]},
        f"{_AT}.rules[0].resources[1]: Invalid value: \"pods/status\": "
        "if 'pods/*' is present, must not specify pods/status",
    ),
    (
        {"rules": [rule("*/* pods")]},
        f"{_AT}.rules[0].resources: Invalid value: [\"*/*\",\"pods\"]: "
        "if '*/*' is present, must not specify other resources",
    ),
    (
        {"rules": [rule("x", scope="Some")]},
        f'{_AT}.rules[0].scope: Unsupported value: "Some": supported values: "*", "Cluster", "Namespaced"',
    ),
    (
        {"objectSelector": {"matchLabels": {"a": "-"}}},
        f'{_AT}.objectSelector.matchLabels: Invalid value: "-": {_LABEL_RULE}',
    ),
    (
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        f"{_AT}.namespaceSelector.matchExpressions[0].values: Required value: "
        "must be specified when `operator` is 'In' or 'NotIn'",
    ),
    (
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Has"}]}},
        f'{_AT}.namespaceSelector.matchExpressions[0].operator: Invalid value: "Has": not a valid selector operator',
    ),
]  # fmt: skip


def case_two_webhooks_of_one_name_are_refused(cluster: WebhookCluster) -> None:
    response = _create(cluster, _webhook(), _webhook())
    assert (response.code, response.message) == (
        422,
        'MutatingWebhookConfiguration.admissionregistration.k8s.io "c" is invalid: '
        'webhooks[1].name: Duplicate value: "a.example.com"',
    )


def case_a_bundle_that_is_not_base64_is_a_bad_request(cluster: WebhookCluster) -> None:
    response = _create(cluster, _webhook(clientConfig={"url": "https://127.0.0.1:1", "caBundle": "***"}))
    assert (response.code, response.message) == (
        400,
        'MutatingWebhookConfiguration in version "v1" cannot be handled as a MutatingWebhookConfiguration: '
        "illegal base64 data at input byte 0",
    )


def case_a_change_counts_and_needs_the_revision(cluster: WebhookCluster) -> None:
    path = f"{_ROOT}/validatingwebhookconfigurations"
    name = f"{cluster.namespace}-generations"
    cluster.configurations.append(f"validatingwebhookconfigurations/{name}")
    created = cluster.request("POST", path, {"metadata": {"name": name}, "webhooks": [_webhook()]})
    assert created.code == 201, created.message
    same = cluster.request("PATCH", f"{path}/{name}", {"metadata": {"labels": {"a": "b"}}})
    assert same.body["metadata"]["generation"] == 1
    changed = cluster.request("PATCH", f"{path}/{name}", {"webhooks": [_webhook(timeoutSeconds=3)]})
    assert changed.body["metadata"]["generation"] == 2
    blind = cluster.request("PUT", f"{path}/{name}", {"metadata": {"name": name}, "webhooks": []})
    assert (blind.code, blind.message) == (
        422,
        f'validatingwebhookconfigurations.admissionregistration.k8s.io "{name}" is invalid: '
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
    )


def case_configurations_pass_no_webhooks(cluster: WebhookCluster) -> None:
    cluster.server.behaviours["/deny"] = deny(message="no")
    everything = cluster.webhook(
        "all.example.com",
        "/deny",
        rules=[rule("*", "*", groups="admissionregistration.k8s.io", versions="*")],
        namespaceSelector={},
    )
    cluster.register("validating", everything)
    cluster.register("mutating", everything)
    assert _create(cluster, _webhook()).code == 201
    assert cluster.server.requests == []
