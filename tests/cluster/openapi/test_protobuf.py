from __future__ import annotations

import asyncio

import pytest

from koordinator.base.protobuf_wire import fields
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.openapi import v2
from koordinator.cluster.openapi.protobuf import CONTENT_TYPE, encode_document
from tests.cluster.embedded import HttpResponse, embedded_api
from tests.cluster.openapi.reading import definitions, named


def _get(accept: str) -> HttpResponse:
    async def main() -> HttpResponse:
        async with embedded_api() as client:
            return await client.request("GET", "/openapi/v2", Accept=accept)

    return asyncio.run(main())


@pytest.mark.parametrize("separator", ["@", "."])
def test_client_go_gets_protobuf(separator: str) -> None:
    response = _get(f"application/com.github.proto-openapi.spec.v2{separator}v1.0+protobuf")
    assert (response.status, response.headers["Content-Type"]) == (200, CONTENT_TYPE)
    assert "io.k8s.api.core.v1.Pod" in definitions(response.body)


@pytest.mark.parametrize("accept", ["application/json", "*/*", "application/json, */*"])
def test_everybody_else_gets_json(accept: str) -> None:
    assert _get(accept).body["swagger"] == "2.0"


def test_every_schema_is_there() -> None:
    document = v2(BUILTIN_RESOURCES)
    assert set(definitions(encode_document(document))) == set(document["definitions"])


def test_a_schema_holds_all_that_json_does() -> None:
    properties = {
        "a": {"type": "string", "description": "d", "enum": ["x", "y"], "maxLength": 3, "pattern": "^a"},
        "b": {"type": "array", "items": {"$ref": "#/definitions/B"}, "x-kubernetes-list-type": "atomic"},
        "c": {"type": "object", "additionalProperties": {"type": "integer", "minimum": -2, "format": "int32"}},
        "d": {"type": "object", "additionalProperties": True},
    }
    document = {"definitions": {"A": {"type": "object", "required": ["a"], "properties": properties}}}
    (found,) = definitions(encode_document(document)).values()
    assert found == schema_of(
        (19, b"a"),
        (22, b"\n\x06object"),
        (
            25,
            [
                ("a", schema_of((4, b"d"), (11, 3), (13, b"^a"), (20, "x"), (20, "y"), (22, b"\n\x06string"))),
                (
                    "b",
                    schema_of(
                        (22, b"\n\x05array"),
                        (23, [schema_of((1, b"#/definitions/B"))]),
                        (31, (b"x-kubernetes-list-type", "atomic")),
                    ),
                ),
                (
                    "c",
                    schema_of(
                        (21, [schema_of((2, b"int32"), (9, b"\0\0\0\0\0\0\0\xc0"), (22, b"\n\x07integer"))]),
                        (22, b"\n\x06object"),
                    ),
                ),
                ("d", schema_of((21, [1]), (22, b"\n\x06object"))),
            ],
        ),
    )


def test_zeros_are_left_out_but_those_of_defaults() -> None:
    zeros = {"minimum": 0, "minLength": 0, "exclusiveMinimum": False, "pattern": "", "default": 0, "enum": [""]}
    (found,) = definitions(encode_document({"definitions": {"A": zeros}})).values()
    assert found == schema_of((5, 0), (20, ""))


def schema_of(*fields: tuple[int, object]) -> list[tuple[int, object]]:
    return sorted(fields, key=repr)


def test_the_patch_operation_says_that_fields_are_validated() -> None:
    """kubectl looks for the parameter before it leaves validation to the server."""
    document = encode_document(v2(BUILTIN_RESOURCES))
    (paths,) = (value for number, value in fields(document) if number == 8 and isinstance(value, bytes))
    item = dict(fields(named(paths, 2)["/api/v1/nodes/{name}"]))
    patch = item[8]
    assert isinstance(patch, bytes)
    assert b"fieldValidation" in patch
    assert b'"kind":"Node"' in patch
