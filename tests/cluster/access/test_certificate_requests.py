"""Who may approve and sign certificate requests: by their signer, or by its domain."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.access.rbac_server import grant, rule, run
from tests.cluster.certificate_requests import request_spec
from tests.cluster.embedded import ApiClient, HttpResponse

GROUP = "certificates.k8s.io"
REQUESTS = f"/apis/{GROUP}/v1/certificatesigningrequests"
APPROVED = {"type": "Approved", "status": "True", "reason": "r"}
FAILED = {"type": "Failed", "status": "True", "reason": "f"}
MERGE = "application/merge-patch+json"


def _changed(subresource: str, status: dict[str, Any], *rules: dict[str, Any]) -> HttpResponse:
    async def scenario(client: ApiClient) -> HttpResponse:
        await client.post(REQUESTS, {"metadata": {"name": "jane"}, "spec": request_spec("example.com/x")})
        paths = f"certificatesigningrequests/{subresource}"
        await grant(client, "bob", rule("patch", paths, GROUP), *rules, cluster=True)
        path = f"{REQUESTS}/jane/{subresource}"
        return await client.request("PATCH", path, {"status": status}, content_type=MERGE, Impersonate_User="bob")

    return run(scenario)


@pytest.mark.parametrize(
    ("subresource", "verb", "condition"), [("approval", "approve", APPROVED), ("status", "sign", FAILED)]
)
@pytest.mark.parametrize("signer", ["", "example.com/x", "example.com/*", "other.com/*"])
def test_a_signer_or_its_domain_must_be_permitted(
    subresource: str, verb: str, condition: dict[str, Any], signer: str
) -> None:
    rules = [rule(verb, "signers", GROUP, signer)] if signer else []
    response = _changed(subresource, {"conditions": [condition]}, *rules)
    if signer.startswith("example.com"):
        assert response.status == 200
        return
    assert (response.status, response.body["message"]) == (
        403,
        'certificatesigningrequests.certificates.k8s.io "jane" is forbidden: '
        f'user not permitted to {verb} requests with signerName "example.com/x"',
    )
