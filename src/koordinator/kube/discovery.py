"""The paths of objects whose kind is known only from a reference, such as the owner of a pod."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from koordinator.api.codec import decode
from koordinator.api.meta import WireStruct
from koordinator.base.errors import KoordinatorError
from koordinator.kube.interface import Client


class UnknownKindError(KoordinatorError):
    """The API server has no such kind, or the reference is not one that a path can be made of."""


class ObjectName(NamedTuple):
    """A reference to a namespaced object by kind and name, as owner references and scale targets have it."""

    api_version: str
    kind: str
    name: str


class _Resource(WireStruct):
    name: str = ""
    kind: str = ""


class _ResourceList(WireStruct):
    resources: list[_Resource] = []


class ObjectPaths:
    """Request paths. The plurals are read from the API server's discovery once for each group and version."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._plurals: dict[tuple[str, str], str] = {}

    async def path(self, of: ObjectName, namespace: str, subresource: str = "") -> str:
        """The path of the object, or of its subresource.

        Raises UnknownKindError, DecodeError for a response that is no resource list, or KubeError: an ApiStatusError
        404 where the API server does not have the group and version.
        """
        plural = await self._plural(of.api_version, of.kind)
        root = _root(of.api_version)
        path = f"{root}/namespaces/{_segment(namespace)}/{plural}/{_segment(of.name)}"
        return f"{path}/{subresource}" if subresource else path

    async def _plural(self, api_version: str, kind: str) -> str:
        key = (api_version, kind)
        if key not in self._plurals:
            listed = decode(await self._client.raw("GET", _root(api_version)), _ResourceList)
            for each in listed.resources:
                if each.name and "/" not in each.name:
                    self._plurals[api_version, each.kind] = each.name
        if key not in self._plurals:
            raise UnknownKindError(f"the API server has no kind {kind} in {api_version}")
        return self._plurals[key]


def _root(api_version: str) -> str:
    """The path of a group and version. A user who may create pods chooses it: it must not lead to any other path."""
    group, slash, version = api_version.partition("/")
    return f"/apis/{_segment(group)}/{_segment(version)}" if slash else f"/api/{_segment(group)}"


def _segment(text: str) -> str:
    """One segment of a path. Escaping does not keep servers from reading dots alone as the parent folder."""
    if text in ("", ".", ".."):
        raise UnknownKindError(f"{text!r} in a reference cannot be part of a path")
    return quote(text, safe="")
