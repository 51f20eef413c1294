"""``kubectl --as`` must not act as the administrator."""

from __future__ import annotations

import asyncio

import pytest

from tests.cluster.embedded import ApiClient, HttpResponse, config_map, embedded_api

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def _create_as(headers: dict[str, str]) -> tuple[HttpResponse, HttpResponse]:
    async def scenario(client: ApiClient) -> tuple[HttpResponse, HttpResponse]:
        response = await client.request("POST", CONFIG_MAPS, config_map("a"), **headers)
        return response, await client.request("GET", f"{CONFIG_MAPS}/a")

    async def main() -> tuple[HttpResponse, HttpResponse]:
        async with embedded_api() as client:
            return await scenario(client)

    return asyncio.run(main())


@pytest.mark.parametrize("header", ["Impersonate-User", "impersonate-user"])
def test_a_request_as_somebody_else_is_refused_and_does_nothing(header: str) -> None:
    refused, found = _create_as({header: "jane"})
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert refused.body["details"] == {"name": "jane", "kind": "users"}
    assert "impersonation works with --authorization-mode=RBAC" in refused.body["message"]
    assert found.status == 404


@pytest.mark.parametrize(
    ("header", "listed"),
    [
        ("Impersonate-Group", "{Group  jane    }"),
        ("Impersonate-Uid", "{UID  jane  authentication.k8s.io/v1  }"),
        ("Impersonate-Extra-Scopes", "{UserExtra  jane  authentication.k8s.io/v1  scopes}"),
    ],
)
def test_groups_without_a_user_are_refused(header: str, listed: str) -> None:
    refused, found = _create_as({header: "jane"})
    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")
    assert refused.body["message"] == f"requested [{listed}] without impersonating a user"
    assert found.status == 404


@pytest.mark.parametrize("headers", [{"Impersonate-User": ""}, {"Impersonate-Something": "jane"}, {"If-Match": "*"}])
def test_headers_that_name_nobody_change_nothing(headers: dict[str, str]) -> None:
    created, _ = _create_as(headers)
    assert created.status == 201
