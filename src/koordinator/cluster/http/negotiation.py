"""In which form a client wants its answer: plain objects, a table for people, or metadata alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from koordinator.cluster.errors import ApiError

Form = Literal["plain", "table", "metadata", "discovery"]

_FORMS: dict[tuple[str, str, str], Form] = {
    ("Table", "meta.k8s.io", "v1"): "table",
    ("PartialObjectMetadata", "meta.k8s.io", "v1"): "metadata",
    ("PartialObjectMetadataList", "meta.k8s.io", "v1"): "metadata",
    ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"): "discovery",
}
_JSON = frozenset(("application/json", "application/*", "*/*"))


@dataclass(frozen=True, slots=True)
class _MediaType:
    name: str
    parameters: dict[str, str]
    quality: float


@lru_cache(maxsize=256)
def negotiate(accept: str) -> Form:
    """The first form of the Accept header that this server makes. Raises ApiError 406 when there is none."""
    offered = [media for media in _parse(accept or "*/*") if media.name in _JSON]
    for media in offered:
        wanted = media.parameters.get("as")
        if not wanted:
            return "plain"
        form = _FORMS.get((wanted, media.parameters.get("g", ""), media.parameters.get("v", "")))
        if form is not None:
            return form
    if offered:
        raise ApiError(406, "NotAcceptable", "only the following media types are accepted: application/json")
    raise ApiError(406, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: application/json", {})


def _parse(accept: str) -> list[_MediaType]:
    media_types = []
    for entry in accept.split(","):
        name, *rest = (part.strip() for part in entry.split(";"))
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 0.0
        media_types.append(_MediaType(name.lower(), parameters, quality))
    return sorted(media_types, key=lambda media: -media.quality)
