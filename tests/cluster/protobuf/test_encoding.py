"""What is encoded is what client-go would have written: decoded, it is the same JSON."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.canonical import canonicalize
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.base.protobuf_wire import contents, text
from koordinator.cluster.errors import ApiError
from koordinator.cluster.protobuf.decoding import decode
from koordinator.cluster.protobuf.encoding import can_encode, encode, encode_event
from koordinator.cluster.protobuf.envelope import MAGIC, RAW, NoTable

_LINES = (Path(__file__).parent / "client_go" / "objects.jsonl").read_text().splitlines()
_RECORDED = [json.loads(line) for line in _LINES]
_CONFIG_MAP = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"b": "c", "a": ""}}


def _canonical(document: Document) -> Document:
    of = kind_type("v1" if document["kind"] == "DeleteOptions" else document["apiVersion"], document["kind"])
    assert of is not None
    canonicalize(document, of)
    return document


def _encoded(document: Any) -> bytes:
    return encode(msgspec.json.encode(document))


def _raw(encoded: bytes) -> bytes:
    (raw,) = contents(encoded.removeprefix(MAGIC), RAW)
    return raw


@pytest.mark.parametrize("entry", _RECORDED, ids=lambda entry: f"{entry['json']['apiVersion']}-{entry['json']['kind']}")
def test_what_go_decodes_is_what_was_encoded(entry: Document) -> None:
    expected = _canonical(decode(base64.b64decode(entry["base64"]), None))
    written = decode(base64.b64decode(entry["base64"]), None)
    if written["kind"] == "DeleteOptions":
        written["apiVersion"] = "v1"
        expected["apiVersion"] = "v1"
    assert _canonical(decode(_encoded(written), None)) == expected


def test_a_list_is_a_message_of_its_metadata_and_its_items() -> None:
    body = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [_CONFIG_MAP]}
    (item,) = contents(_raw(_encoded(body)), 2)
    assert item == _raw(_encoded(_CONFIG_MAP))
    assert text(contents(_raw(_encoded(body)), 1)[0], 2) == "7"


def test_metadata_alone_can_be_had_of_every_kind() -> None:
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}}
    (metadata,) = contents(_raw(_encoded(partial)), 1)
    assert text(metadata, 1) == "a"


def test_an_event_has_its_length_and_an_object_in_an_envelope() -> None:
    frame = encode_event(msgspec.json.encode({"type": "ADDED", "object": _CONFIG_MAP}))
    event = frame[4:]
    assert int.from_bytes(frame[:4], "big") == len(event)
    assert text(event, 1) == "ADDED"
    (extension,) = contents(event, 2)
    assert contents(extension, 1) == [_encoded(_CONFIG_MAP)]


def test_times_before_the_epoch_and_parts_of_seconds() -> None:
    lease = {
        "kind": "Lease",
        "apiVersion": "coordination.k8s.io/v1",
        "metadata": {"name": "a", "creationTimestamp": "1969-12-31T23:59:59Z"},
        "spec": {"renewTime": "1969-12-31T23:59:59.500000Z"},
    }
    assert decode(_encoded(lease), None) == lease


def test_a_definition_with_all_that_a_schema_may_say() -> None:
    leaf = {"type": "integer", "minimum": 1, "maximum": 2.5, "default": 1, "enum": [1, 2], "nullable": True}
    schema = {
        "type": "object",
        "description": "d",
        "required": ["a"],
        "properties": {"a": leaf, "b": {"type": "array", "items": leaf}, "c": {"items": [leaf, {"type": "string"}]}},
        "additionalProperties": False,
        "patternProperties": {"x": {"additionalProperties": leaf, "additionalItems": True}},
        "dependencies": {"a": ["b"], "b": leaf},
        "not": {"allOf": [leaf], "anyOf": [leaf, leaf], "oneOf": [leaf]},
        "externalDocs": {"url": "u"},
        "x-kubernetes-preserve-unknown-fields": False,
        "x-kubernetes-list-map-keys": ["k"],
        "x-kubernetes-list-type": "map",
        "x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": False}],
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "kind": "CustomResourceDefinition",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "a.b"},
        "spec": {"versions": [version]},
    }
    assert decode(_encoded(definition), None) == definition


@pytest.mark.parametrize("kind", ["Foo", "FooList"])
def test_kinds_without_a_table(kind: str) -> None:
    assert not can_encode("example.com/v1", kind)
    with pytest.raises(NoTable):
        _encoded({"kind": kind, "apiVersion": "example.com/v1", "metadata": {}, "items": [{}]})


def test_a_list_of_such_a_kind_is_refused_as_a_body() -> None:
    with pytest.raises(ApiError):
        decode(_encoded({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": []}), None)
