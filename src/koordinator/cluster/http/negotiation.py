"""Which form of a response a client wants, and in which encoding: the header Accept, read as the real server does.

One thing differs: a client that accepts JSON and prefers protobuf gets JSON. All client-go programs are such clients,
and JSON is spliced from what is stored, while protobuf is encoded field by field.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec
import yaml
from aiohttp import web
from aiohttp.payload import Payload

from koordinator.cluster.errors import ApiError
from koordinator.cluster.protobuf.encoding import can_encode, encode, encode_event
from koordinator.cluster.protobuf.envelope import CONTENT_TYPE, NoTable

Form = Literal["plain", "table", "metadata", "discovery"]
"""Plain objects, a table for people, metadata alone, or all of discovery in one document."""
Encoding = Literal["json", "yaml", "protobuf"]

_FORMS: Final[dict[tuple[str, str, str], Form]] = {
    ("Table", "meta.k8s.io", "v1"): "table",
    ("PartialObjectMetadata", "meta.k8s.io", "v1"): "metadata",
    ("PartialObjectMetadataList", "meta.k8s.io", "v1"): "metadata",
    ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"): "discovery",
}
_MEDIA_TYPES: Final[dict[Encoding, str]] = {
    "json": "application/json",
    "yaml": "application/yaml",
    "protobuf": CONTENT_TYPE,
}
_STREAM: Final = ";stream=watch"
_LONG: Final = 64 << 10
"""Bytes of JSON from which on it is encoded anew beside the event loop."""


@dataclass(frozen=True, slots=True)
class Representation:
    """What was agreed on."""

    form: Form
    encoding: Encoding = "json"

    @property
    def stream_type(self) -> str:
        """The media type of a watch."""
        return _MEDIA_TYPES[self.encoding] + ("" if self.encoding == "json" else _STREAM)

    def frame(self, line: bytes) -> bytes:
        """One event of a watch, from its line of JSON."""
        return line if self.encoding == "json" else encode_event(line)


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """What an endpoint can answer with."""

    forms: frozenset[Form]
    encodings: tuple[Encoding, ...] = tuple(_MEDIA_TYPES)
    """Of whole objects; their metadata can always be had in protobuf, and tables never."""
    streams: bool = False
    routed: bool = True
    """The real server's router knows the media types of its endpoints: all but watches, and those of custom resources.
    It lists those of watches, too."""

    def makes(self, form: Form, encoding: Encoding) -> bool:
        if form not in self.forms:
            return False
        if encoding == "protobuf" and form != "plain":
            return form == "metadata" or (form == "discovery" and encoding in self.encodings)
        return encoding in self.encodings

    @property
    def media_types(self) -> list[str]:
        """As a refusal lists them."""
        return [_MEDIA_TYPES[encoding] + (_STREAM if self.streams else "") for encoding in self.encodings]


_OBJECTS: Final[frozenset[Form]] = frozenset(("plain", "table", "metadata"))
DISCOVERY: Final = Offer(frozenset(("plain", "discovery")))
VERSION: Final = Offer(frozenset(("plain",)), ("json",))


REVIEWS: Final = Offer(frozenset(("plain",)))
"""What answers a question is nothing that can be listed."""


@lru_cache(maxsize=1024)
def offer(api_version: str, kind: str, *, streams: bool, custom: bool) -> Offer:
    """Of the endpoints of a kind."""
    encodings: tuple[Encoding, ...] = ("json",) if streams else ("json", "yaml")
    if can_encode(api_version, kind):
        encodings = (*encodings, "protobuf")
    return Offer(_OBJECTS, encodings, streams, routed=not custom and not streams)


REPRESENTATION: Final = web.RequestKey("representation", Representation)
"""Under this key a request has what was agreed on."""


def represent(request: web.BaseRequest, offered: Offer) -> Representation:
    """Find an agreement, and keep it in the request. Raises ApiError 406 when there is none."""
    agreed = negotiate(request.headers.get("Accept", ""), offered)
    request[REPRESENTATION] = agreed
    return agreed


@dataclass(frozen=True, slots=True)
class _MediaType:
    name: str
    parameters: dict[str, str]
    quality: float

    @property
    def wildcards(self) -> int:
        return self.name.count("*")

    def accepts(self, encoding: Encoding) -> bool:
        return self.name in ("*/*", "application/*", _MEDIA_TYPES[encoding])

    @property
    def form(self) -> Form | None:
        wanted = self.parameters.get("as")
        if not wanted:
            return "plain"
        return _FORMS.get((wanted, self.parameters.get("g", ""), self.parameters.get("v", "")))


@lru_cache(maxsize=256)
def negotiate(accept: str, offered: Offer) -> Representation:
    """The first that the client accepts and that can be made. Raises ApiError 406 when there is none."""
    accepted = _parse(accept or "*/*")
    made = [
        Representation(form, encoding)
        for media in accepted
        for encoding in _MEDIA_TYPES
        if media.accepts(encoding) and (form := media.form) is not None and offered.makes(form, encoding)
    ]
    if not made:
        raise _not_acceptable(accepted, offered)
    best = made[0]
    in_json = Representation(best.form)
    return in_json if best.encoding == "protobuf" and in_json in made else best


def _not_acceptable(accepted: list[_MediaType], offered: Offer) -> ApiError:
    listed = ", ".join(offered.media_types)
    known = any(media.accepts(encoding) for media in accepted for encoding in offered.encodings)
    if known or not offered.routed:
        return ApiError(406, "NotAcceptable", f"only the following media types are accepted: {listed}")
    if offered.forms == _OBJECTS:
        streams = (_MEDIA_TYPES[encoding] + _STREAM for encoding in offered.encodings if encoding != "yaml")
        listed = ", ".join([listed, *streams])
    return ApiError(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {listed}", {})


def _parse(accept: str) -> list[_MediaType]:
    """Those that are preferred come first; of equal ones, those that say more."""
    media_types = []
    for entry in accept.split(","):
        name, *rest = (part.strip() for part in entry.split(";"))
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 0.0
        media_types.append(_MediaType(name.lower(), parameters, quality))
    return sorted(media_types, key=lambda media: (-media.quality, media.wildcards))


async def encoded(response: web.StreamResponse, agreed: Representation) -> web.StreamResponse:
    """The response in an encoding other than JSON; what has no object in it stays as it is, which its media type
    says."""
    if not isinstance(response, web.Response) or response.body is None:
        return response
    media, _, parameters = response.headers.get("Content-Type", "").partition(";")
    if media != _MEDIA_TYPES["json"]:
        return response
    recode: Callable[[bytes], bytes] = encode if agreed.encoding == "protobuf" else _to_yaml
    # A long list is no bytes yet.
    body = response.body.decode().encode() if isinstance(response.body, Payload) else bytes(response.body)
    try:
        response.body = await asyncio.to_thread(recode, body) if len(body) > _LONG else recode(body)
    except NoTable:
        return response
    response.headers["Content-Type"] = ";".join(filter(None, (_MEDIA_TYPES[agreed.encoding], parameters)))
    return response


class _Dumper(yaml.CSafeDumper):
    """Writes texts of several lines as such."""


def _text(dumper: yaml.CSafeDumper, value: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def _to_yaml(body: bytes) -> bytes:
    text: str = yaml.dump(msgspec.json.decode(body), Dumper=_Dumper, allow_unicode=True)
    return text.encode()
