"""A process that writes to a store without end and says what was acknowledged; its test kills it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from koordinator.cluster.storage.sqlite import SqliteStorage


async def _write_forever(store: SqliteStorage, key: str) -> None:
    stored = await store.create(key, b"0")
    number = 0
    while True:
        os.write(1, f"{stored.revision} {key} {stored.value.decode()}\n".encode())
        number += 1
        stored = await store.update(key, b"%d" % number, stored.revision)


async def _main(path: Path) -> None:
    store = SqliteStorage(path)
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(_write_forever(store, f"/g/k/{number}"))


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
