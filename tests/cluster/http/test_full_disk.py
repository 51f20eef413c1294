"""The whole server on a disk without free capacity: reads are served, writes are refused clearly, and it recovers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from koordinator.cluster.server import ServerOptions
from tests.cluster.embedded import ApiClient, config_map, embedded_api
from tests.cluster.storage.faulty import FULL, Disk

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def _run(folder: Path, scenario: Callable[[ApiClient, Disk], Awaitable[None]]) -> None:
    async def main() -> None:
        disk = Disk()
        async with embedded_api(ServerOptions(data=folder / "data", connect=disk.connect)) as client:
            await scenario(client, disk)
            disk.recover()

    asyncio.run(main())


def test_a_write_is_refused_in_a_way_that_clients_send_again(tmp_path: Path) -> None:
    async def scenario(client: ApiClient, disk: Disk) -> None:
        disk.fail("INSERT", code=FULL)
        response = await client.request("POST", CONFIG_MAPS, config_map("c"))
        status = response.body
        assert (response.status, response.headers["Retry-After"]) == (507, "1")
        assert (status["kind"], status["reason"], status["details"]["retryAfterSeconds"]) == (
            "Status",
            "InternalError",
            1,
        )
        assert "the disk is full" in status["message"]
        assert (await client.request("GET", f"{CONFIG_MAPS}/c")).status == 404
        assert (await client.request("POST", CONFIG_MAPS, config_map("c"))).status == 201

    _run(tmp_path, scenario)


def test_a_write_whose_outcome_is_not_known_is_not_sent_again_blindly(tmp_path: Path) -> None:
    async def scenario(client: ApiClient, disk: Disk) -> None:
        disk.fail("COMMIT")
        disk.fail("ROLLBACK")
        disk.refuses = True
        response = await client.request("POST", CONFIG_MAPS, config_map("c"))
        assert (response.status, "Retry-After" in response.headers) == (500, False)
        assert "whether the write was stored is not known" in response.body["message"]

    _run(tmp_path, scenario)


def test_health_tells_while_reads_are_served(tmp_path: Path) -> None:
    async def scenario(client: ApiClient, disk: Disk) -> None:
        assert (await client.request("GET", "/readyz")).status == 200
        disk.fail("INSERT", code=FULL, times=10)
        disk.fail("UPDATE", code=FULL, times=10)
        await client.request("POST", CONFIG_MAPS, config_map("c"))
        ready, live = await client.request("GET", "/readyz"), await client.request("GET", "/livez")
        listed = await client.request("GET", "/api/v1/namespaces")
        assert (ready.status, live.status, listed.status) == (500, 200, 200)
        assert "[-]storage failed: " in ready.body.decode()
        assert "the disk is full" in ready.body.decode()
        assert ready.body.decode().endswith("readyz check failed\n")
        disk.recover()
        assert (await client.request("POST", CONFIG_MAPS, config_map("c"))).status == 201
        assert (await client.request("GET", "/healthz")).status == 200

    _run(tmp_path, scenario)
