"""What the real server's OpenAPI document becomes in our encoding is what the real server makes of it."""

from __future__ import annotations

import json
import ssl
import urllib.request

from koordinator.cluster.openapi.protobuf import ACCEPTED, encode_document
from tests.cluster.openapi.reading import definitions
from tests.real.control_plane import TOKEN, ControlPlane
from tests.real.installation import eventually


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _download(plane: ControlPlane, accept: str) -> bytes:
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": accept}
    request = urllib.request.Request(f"{plane.url}/openapi/v2", headers=headers)
    with urllib.request.urlopen(request, context=_unverified(), timeout=60) as response:
        body: bytes = response.read()
        return body


_ZEROS = {
    "amount": {"type": "integer", "minimum": 0, "maximum": 0, "default": 0, "exclusiveMinimum": False},
    "text": {"type": "string", "minLength": 0, "pattern": "", "description": "", "default": ""},
    "list": {"type": "array", "items": {"type": "string", "enum": ["", "a"]}, "minItems": 0},
}
"""What protobuf cannot tell from what is absent, and what it can."""
_KIND = "io.koordinator.test.v1.Zero"


def _define(plane: ControlPlane) -> None:
    schema = {"type": "object", "properties": _ZEROS}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "zeros", "singular": "zero", "kind": "Zero"}
    spec = {"group": "test.koordinator.io", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "zeros.test.koordinator.io"}, "spec": spec}
    plane.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)


def test_schemas_are_encoded_like_those_of_the_real_server(real_control_plane: ControlPlane) -> None:
    plane = real_control_plane
    _define(plane)
    # The server makes the document anew in the background, for the two forms at once.
    eventually(lambda: _KIND in json.loads(_download(plane, "application/json"))["definitions"], "definition of Zero")
    ours = definitions(encode_document(json.loads(_download(plane, "application/json"))))
    theirs = definitions(_download(plane, ACCEPTED[1]))
    assert ours.keys() == theirs.keys()
    assert [name for name in theirs if ours[name] != theirs[name]] == []
