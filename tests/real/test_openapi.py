"""What the real server's OpenAPI document becomes in our encoding is what the real server makes of it."""

from __future__ import annotations

import json
import ssl
import urllib.request

from koordinator.cluster.openapi.protobuf import ACCEPTED, encode_document
from tests.cluster.openapi.reading import definitions
from tests.real.control_plane import TOKEN, ControlPlane


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


def test_schemas_are_encoded_like_those_of_the_real_server(real_control_plane: ControlPlane) -> None:
    ours = definitions(encode_document(json.loads(_download(real_control_plane, "application/json"))))
    theirs = definitions(_download(real_control_plane, ACCEPTED[1]))
    # Tests that share the control plane may have defined kinds of their own: these are for others to compare.
    built_in = [name for name in theirs if name.startswith("io.k8s.")]
    assert [name for name in built_in if ours.get(name) != theirs[name]] == []
    assert len(built_in) > 300
    assert ours.keys() == theirs.keys()
