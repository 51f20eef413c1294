"""All pages of a list as one, on any client."""

from __future__ import annotations

from typing import TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, ListPage, Malformed

T = TypeVar("T", bound=Object)
_PAGE_LIMIT = 500
_PAGED_ATTEMPTS = 3


async def list_all(
    client: Client,
    kind: Kind[T],
    namespace: str = "",
    *,
    label_selector: str = "",
    field_selector: str = "",
    resource_version: str = "",
    limit: int = _PAGE_LIMIT,
) -> ListPage[T]:
    """Every object, as of one resource version.

    A continue token that expires between pages (410) starts the list over; when that keeps happening, the list is
    requested in one piece, which cannot expire.
    """
    for attempt in range(_PAGED_ATTEMPTS + 1):
        items: list[T] = []
        malformed: list[Malformed] = []
        token = ""
        while True:
            try:
                page = await client.list(
                    kind,
                    namespace,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    limit=limit if attempt < _PAGED_ATTEMPTS else 0,
                    continue_token=token,
                    # A token already holds the version of its list; the server refuses both together.
                    resource_version="" if token else resource_version,
                )
            except ApiStatusError as error:
                if error.is_expired and token:
                    break
                raise
            items += page.items
            malformed += page.malformed
            token = page.continue_token
            if not token:
                return ListPage(items, malformed, page.resource_version, "", None)
    raise ApiStatusError(410, "Expired", f"the list of {kind.qualified} expired on every attempt")
