"""What this server does otherwise than kube-apiserver on purpose, request by request (docs/differences.toml)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from koordinator.api.document import Document
from tests.cluster.embedded import ApiClient, HttpResponse, config_map, embedded_api, pod

DEFAULT: Final = "/api/v1/namespaces/default"
PODS: Final = f"{DEFAULT}/pods"
CONFIG_MAPS: Final = f"{DEFAULT}/configmaps"
_POLICIES: Final = "/apis/admissionregistration.k8s.io"
_WEBHOOKS: Final = f"{_POLICIES}/v1/validatingwebhookconfigurations"
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PROTECTED: Final[Document] = {
    "metadata": {"name": "widgets.example.k8s.io"},
    "spec": {
        "group": "example.k8s.io",
        "names": {"plural": "widgets", "kind": "Widget"},
        "scope": "Namespaced",
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}
_CONTAINER: Final = {"name": "main", "image": "image"}


def answered(method: str, path: str, body: Any = None, **more: str) -> HttpResponse:
    async def main() -> HttpResponse:
        async with embedded_api() as client:
            return await client.request(method, path, body, **more)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(
            PODS, pod("p", containers=[{**_CONTAINER, "securityContext": {"privileged": True}}]), id="privileged"
        ),
        pytest.param(
            PODS,
            pod("p", containers=[{**_CONTAINER, "resources": {"claims": [{"name": "none"}]}}]),
            id="claims of devices",
        ),
        pytest.param(
            PODS, pod("p", containers=[{**_CONTAINER, "env": [{"name": "A", "value": "1"}] * 2}]), id="a name twice"
        ),
        pytest.param(_DEFINITIONS, _PROTECTED, id="a protected group without an approval"),
    ],
)
def test_it_is_taken_without_a_warning(path: str, body: Document) -> None:
    response = answered("POST", path, body)
    assert (response.status, response.headers.get("Warning")) == (201, None), response.body


def test_responses_are_not_compressed() -> None:
    response = answered("GET", "/openapi/v2", Accept_Encoding="gzip")
    assert "Content-Encoding" not in response.headers


def test_an_unreadable_version_is_a_bad_request() -> None:
    assert answered("GET", f"{CONFIG_MAPS}/a?resourceVersion=x").status == 400


def test_mutating_admission_policies_are_not_served() -> None:
    assert answered("GET", f"{_POLICIES}/v1beta1/mutatingadmissionpolicies").status == 404


def test_a_list_from_the_cache_is_paged() -> None:
    async def main() -> Document:
        async with embedded_api() as client:
            for name in "ab":
                await client.post(CONFIG_MAPS, config_map(name))
            listed: Document = await client.get(f"{CONFIG_MAPS}?resourceVersion=0&limit=1")
            return listed

    listed = asyncio.run(main())
    assert len(listed["items"]) == 1
    assert listed["metadata"]["continue"]


def test_yaml_with_aliases_is_read_while_it_is_small() -> None:
    """Beyond the limit of a body it is refused, before anything is made of it."""
    small = b"metadata: {name: a}\ndata: {b: &text c, d: *text, e: *text}\n"
    response = answered("POST", CONFIG_MAPS, small, content_type="application/yaml")
    assert (response.status, response.body["data"]) == (201, {"b": "c", "d": "c", "e": "c"})
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 9)]
    large = "metadata: {name: a}\n" + "\n".join(levels)
    assert answered("POST", CONFIG_MAPS, large.encode(), content_type="application/yaml").status in (400, 413)


async def _refusing_everything(client: ApiClient) -> None:
    """A webhook that nobody answers for, for all kinds."""
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
    webhook = {
        "name": "nobody.example.com",
        "rules": [rule],
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
    }
    await client.post(_WEBHOOKS, {"metadata": {"name": "all"}, "webhooks": [webhook]})


def test_a_configuration_of_webhooks_is_in_force_when_its_creation_returns_and_reviews_do_not_pass_it() -> None:
    async def main() -> tuple[int, int]:
        async with embedded_api() as client:
            await _refusing_everything(client)
            refused = await client.request("POST", CONFIG_MAPS, config_map("a"))
            review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            return refused.status, (await client.request("POST", path, review)).status

    assert asyncio.run(main()) == (500, 201)


def test_a_policy_is_in_force_when_its_author_gets_the_response() -> None:
    async def main() -> int:
        async with embedded_api() as client:
            rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
            spec = {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "object.metadata.name != 'a'"}],
            }
            await client.post(f"{_POLICIES}/v1/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
            binding = {"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
            await client.post(f"{_POLICIES}/v1/validatingadmissionpolicybindings", binding)
            return (await client.request("POST", CONFIG_MAPS, config_map("a"))).status

    assert asyncio.run(main()) == 422
