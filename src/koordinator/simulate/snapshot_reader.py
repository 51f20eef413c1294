"""Takes a snapshot of a cluster by list requests alone: a role that may list is sufficient."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from koordinator.api.kinds import CONFIG_MAPS, Kind
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client
from koordinator.kube.request import query_string
from koordinator.simulate.snapshot import NotListedError, Snapshot, SnapshotError
from koordinator.simulate.snapshot_kinds import (
    CONFIG_MAP_NAMES,
    CONFIGURATION_NAMESPACE,
    REQUIRED_KINDS,
    SCHEDULER_CONFIG_MAP,
    SNAPSHOT_KINDS,
    kept_form,
)

_PAGE: Final = 500


class _ListMeta(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[dict[str, Any]] | None = None


_decode = msgspec.json.Decoder(_List).decode


async def take_snapshot(client: Client, cluster: str, now: Callable[[], datetime]) -> Snapshot:
    """The present objects of the cluster. A kind that the server does not have, or forbids listing, is in ``missing``.

    Raises NotListedError where nodes or pods may not be listed, SnapshotError for a list that cannot be decoded, and
    KubeError where the server cannot be reached.
    """
    began = now()
    objects: dict[str, list[bytes]] = {}
    missing: dict[str, str] = {}
    for kind in SNAPSHOT_KINDS:
        try:
            found = await _list(client, kind, kind.path())
        except ApiStatusError as error:
            if not (error.is_not_found or error.is_forbidden):
                raise
            if kind in REQUIRED_KINDS:
                raise NotListedError(_refusal(kind, error)) from error
            if error.is_forbidden:
                missing[kind.qualified] = "not allowed to list it"
            continue
        if found:
            objects[kind.qualified] = found
    configuration = ""
    try:
        maps = await _config_maps(client)
    except ApiStatusError as error:
        if not (error.is_not_found or error.is_forbidden):
            raise
        maps = []
        if error.is_forbidden:
            missing[CONFIG_MAPS.qualified] = f"not allowed to list those of {CONFIGURATION_NAMESPACE}"
    if maps:
        objects[CONFIG_MAPS.qualified] = maps
        configuration = _scheduler_configuration(maps)
    source = f"ConfigMap {CONFIGURATION_NAMESPACE}/{SCHEDULER_CONFIG_MAP}" if configuration else ""
    return Snapshot(cluster, began, now(), objects, missing, configuration, source)


async def _list(client: Client, kind: Kind[Any], path: str, field_selector: str = "") -> list[bytes]:
    found: list[bytes] = []
    token = ""
    while True:
        query = query_string({"limit": _PAGE, "continue": token, "fieldSelector": field_selector})
        try:
            page = _decode(await client.raw("GET", f"{path}?{query}"))
        except msgspec.DecodeError as error:
            raise SnapshotError(f"the list of {kind.qualified} cannot be read: {error}") from error
        except ApiStatusError as error:
            if not (error.is_expired and token):
                raise
            # The continue token has expired before the last page.
            token, found = "", []
            continue
        found += [kept for obj in page.items or () if (kept := kept_form(kind, obj)) is not None]
        token = page.metadata.continue_
        if not token:
            return found


async def _config_maps(client: Client) -> list[bytes]:
    path = CONFIG_MAPS.path(quote(CONFIGURATION_NAMESPACE))
    found: list[bytes] = []
    for name in CONFIG_MAP_NAMES:
        found += await _list(client, CONFIG_MAPS, path, f"metadata.name={name}")
    return found


def _scheduler_configuration(maps: list[bytes]) -> str:
    documents = [msgspec.json.decode(each) for each in maps]
    found: dict[str, Any] = next((each for each in documents if each["metadata"]["name"] == SCHEDULER_CONFIG_MAP), {})
    text = (found.get("data") or {}).get(SCHEDULER_CONFIG_MAP)
    return text if isinstance(text, str) else ""


def _refusal(kind: Kind[Any], error: ApiStatusError) -> str:
    return (
        f"{kind.plural} cannot be listed ({error.message or error.reason}); what-if needs a role that may list what "
        "docs/examples/what-if-role.yaml names, and nothing else"
    )
