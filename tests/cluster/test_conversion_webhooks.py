"""Conversion without a server: how many requests there are, and which version bytes are in."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from koordinator.api.document import Document
from koordinator.cluster.admission_webhooks.configuration import ClientConfig
from koordinator.cluster.conversion_webhooks import WebhookConversion
from koordinator.cluster.custom_resources import resources_of
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.target import decode, encode, shown, wire

_OLD, _NEW = "example.com/v1", "example.com/v2"


def _definition(
    *names: str, storage: str = "v1", strategy: str = "Webhook", stored: tuple[str, ...] = ("v1",)
) -> Document:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    client = {"url": "https://127.0.0.1/convert"}
    webhook = {"webhook": {"clientConfig": client, "conversionReviewVersions": ["v9", "v1"]}}
    spec = {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": n, "served": True, "storage": n == storage, "schema": schema} for n in names],
        "conversion": {"strategy": strategy, **(webhook if strategy == "Webhook" else {})},
    }
    return {"spec": spec, "status": {"storedVersions": list(stored)}}


class _Webhook:
    """Says in each object which version it was in."""

    def __init__(self, **response: Any) -> None:
        self.sizes: list[int] = []
        self._response = response

    async def post(self, client: ClientConfig, review: bytes, timeout: float) -> bytes:
        request = msgspec.json.decode(review)["request"]
        self.sizes.append(len(request["objects"]))
        wanted = request["desiredAPIVersion"]
        objects = [{**each, "was": each["apiVersion"], "apiVersion": wanted} for each in request["objects"]]
        response = {"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}}
        return msgspec.json.encode(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "ConversionReview",
                "response": {**response, **self._response},
            }
        )


def _resources(webhook: _Webhook, definition: Document) -> dict[str, Resource]:
    found = resources_of(definition, None, lambda spec: WebhookConversion(webhook.post, spec))
    return {resource.version: resource for resource in found}


def _thing(name: str, api_version: str, **fields: Any) -> Document:
    return {"apiVersion": api_version, "kind": "Thing", "metadata": {"name": name, "uid": name}, **fields}


def _convert(webhook: _Webhook, objects: list[Document]) -> list[Document]:
    conversion = _resources(webhook, _definition("v1", "v2"))["v2"].conversion
    assert conversion is not None
    return asyncio.run(conversion.convert(objects, _NEW))


def test_objects_are_sent_together_and_those_that_have_the_version_are_not() -> None:
    webhook = _Webhook()
    objects = [_thing("a", _OLD), _thing("b", _NEW), _thing("c", _OLD)]
    converted = _convert(webhook, objects)
    assert [(each["metadata"]["name"], each.get("was")) for each in converted] == [
        ("a", _OLD),
        ("b", None),
        ("c", _OLD),
    ]
    assert webhook.sizes == [2]


def test_a_request_is_bounded_by_number_and_by_size() -> None:
    webhook = _Webhook()
    _convert(webhook, [_thing(str(index), _OLD) for index in range(1001)])
    assert webhook.sizes == [500, 500, 1]
    large = _Webhook()
    _convert(large, [_thing(str(index), _OLD, text="x" * 600_000) for index in range(3)])
    assert large.sizes == [2, 1]


def test_of_several_objects_the_wrong_one_is_named() -> None:
    objects = [_thing("a", _NEW), _thing("c", _NEW)]
    with pytest.raises(ApiError, match="returned invalid converted object at index 1: must have the same name: b != c"):
        _convert(_Webhook(convertedObjects=objects), [_thing("a", _OLD), _thing("b", _OLD)])


@pytest.mark.parametrize("labels", ["text", {"a": 1}, {"a": "not a label!"}])
def test_labels_that_are_none_are_refused(labels: Any) -> None:
    metadata = {"name": "a", "uid": "a", "labels": labels}
    wrong = {"apiVersion": _NEW, "kind": "Thing", "metadata": metadata}
    with pytest.raises(ApiError, match=r"returned invalid metadata: metadata\.labels"):
        _convert(_Webhook(convertedObjects=[wrong]), [_thing("a", _OLD)])


def test_bytes_that_name_no_version_are_in_the_one_that_was_there_first() -> None:
    webhook = _Webhook()
    alone = _resources(webhook, _definition("v1"))["v1"]
    stored = Stored("/example.com/things/a", encode(alone, _thing("a", _OLD, spec={"size": 1})), 7)
    two = _resources(webhook, _definition("v1", "v2", storage="v2", stored=("v1", "v2")))
    (converted,) = asyncio.run(shown(two["v2"], [stored]))
    assert decode(two["v2"], converted)["was"] == _OLD
    assert asyncio.run(shown(two["v1"], [stored])) == [stored]
    assert webhook.sizes == [1]


def test_versions_of_one_form_differ_in_their_names_alone() -> None:
    """The bytes name the version in case a webhook converts later."""
    resources = _resources(_Webhook(), _definition("v1", "v2", strategy="None"))
    stored = Stored(
        "/example.com/things/a", encode(resources["v2"], _thing("a", _NEW, apiVersionOf={"apiVersion": "x"})), 7
    )
    assert msgspec.json.decode(stored.value)["apiVersion"] == _OLD
    for version, resource in resources.items():
        written = wire(resource, stored)
        assert written.count(b'"apiVersion"') == 2
        assert msgspec.json.decode(written) == decode(resource, stored)
        assert decode(resource, stored)["apiVersion"] == f"example.com/{version}"
