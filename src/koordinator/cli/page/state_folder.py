"""What a page leaves in a folder: its history, and how another command of the same person gets a link to it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import aiohttp

from koordinator.cli.data_folder import PAGE, address_of, publish_address, withdraw_address
from koordinator.cli.explain_failure import ExplainError
from koordinator.cluster.data_folder import write_private

_SECONDS: Final = 5.0


class StateFolder:
    """A folder of one page at a time: that of a koord up, whose page runs as long as it does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def history(self) -> Path:
        return self._folder / "page-history"

    @property
    def _key(self) -> Path:
        return self._folder / "page-key"

    def publish(self, port: int, key: str) -> None:
        """The page of this folder serves there, and gives links to whoever can read its key."""
        write_private(self._key, key.encode())
        publish_address(self._folder, PAGE, port)

    def withdraw(self) -> None:
        """It is gone."""
        withdraw_address(self._folder, PAGE)
        self._key.unlink(missing_ok=True)

    async def link(self) -> str | None:
        """A link to the page of this folder; None where none runs. Raises ExplainError where it does not answer."""
        address = address_of(self._folder, PAGE)
        if address is None:
            return None
        try:
            key = self._key.read_text()
            timeout = aiohttp.ClientTimeout(total=_SECONDS)
            headers = {"Authorization": f"Bearer {key}"}
            async with (
                aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session,
                session.post(f"{address}/tickets", headers=headers) as response,
            ):
                return f"{address}/open?ticket={await response.text()}"
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            raise ExplainError(
                f"the page of {self._folder} is to be at {address}, but gives no link: {error}"
            ) from error
