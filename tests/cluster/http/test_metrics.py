from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.cluster.embedded import ApiClient, embedded_api

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
Scenario = Callable[[ApiClient], Awaitable[object]]


def _lines(scenario: Scenario) -> list[str]:
    """What is scraped after it."""

    async def main() -> list[str]:
        async with embedded_api() as client:
            await scenario(client)
            text: str = (await client.get("/metrics")).decode()
            return text.splitlines()

    return asyncio.run(main())


async def _nothing(client: ApiClient) -> None:
    """Nothing is requested."""


def _total(**labels: str) -> str:
    names = ("verb", "group", "version", "resource", "subresource", "scope", "code")
    values = {name: labels.get(name, "") for name in sorted(names)}
    shown = ",".join(f'{name}="{value}"' for name, value in values.items())
    return f"apiserver_request_total{{{shown}}} 1.0"


@pytest.mark.parametrize(
    ("method", "path", "labels"),
    [
        ("GET", CONFIG_MAPS, {"verb": "LIST", "scope": "namespace", "code": "200"}),
        ("GET", "/api/v1/configmaps", {"verb": "LIST", "scope": "cluster", "code": "200"}),
        ("GET", f"{CONFIG_MAPS}/none", {"verb": "GET", "scope": "resource", "code": "404"}),
        ("DELETE", CONFIG_MAPS, {"verb": "DELETECOLLECTION", "scope": "namespace", "code": "200"}),
    ],
)
def test_requests_are_counted(method: str, path: str, labels: dict[str, str]) -> None:
    expected = _total(version="v1", resource="configmaps", **labels)
    assert expected in _sorted_labels(_lines(lambda client: client.request(method, path)))


def test_what_a_client_makes_up_becomes_no_series() -> None:
    lines = _lines(lambda client: client.request("GET", "/apis/made.up/v1/things/x/y"))
    assert _total(verb="GET", code="404") in _sorted_labels(lines)
    assert not [line for line in lines if "made.up" in line]


def test_objects_are_counted() -> None:
    secret = {"metadata": {"name": "a"}}
    lines = _lines(lambda client: client.post("/api/v1/namespaces/default/secrets", secret))
    assert 'apiserver_resource_objects{group="",resource="secrets"} 1.0' in lines


def test_open_watches_are_counted() -> None:
    async def main() -> str:
        async with embedded_api() as client, client.watch(CONFIG_MAPS):
            return str((await client.get("/metrics")).decode())

    assert 'apiserver_longrunning_requests{verb="WATCH"} 1.0' in asyncio.run(main())


def test_the_process_is_among_them() -> None:
    assert [line for line in _lines(_nothing) if line.startswith("process_resident_memory_bytes ")]


def test_who_has_no_token_sees_none() -> None:
    async def main() -> int:
        async with embedded_api() as client:
            return (await client.request("GET", "/metrics", Authorization="Bearer wrong")).status

    assert asyncio.run(main()) == 401


def _sorted_labels(lines: list[str]) -> list[str]:
    found = []
    for line in lines:
        name, brace, rest = line.partition("{")
        labels, _, value = rest.partition("}")
        found.append(f"{name}{{{','.join(sorted(labels.split(',')))}}}{value}" if brace else line)
    return found
