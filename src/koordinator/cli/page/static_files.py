"""The files of the page as browsers get them: compressed once, checked by their hash, and with the headers that keep
everything else out of the page."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from koordinator.kube.pages import PageError, Request, Response

_POLICY: Final = (
    "default-src 'none'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
)
_IMPORT_MAP: Final = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)
"""The only script within a file of HTML: browsers take such a map from nowhere else."""
HEADERS: Final[Mapping[str, str]] = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of each response: nothing is loaded from elsewhere, nothing that is text is taken for a script, and no other site can
put the page into a frame or send what it shows elsewhere."""
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}


def content_security_policy(page: bytes = b"") -> str:
    """Scripts are those of this server, and within a page its import map alone, named by its hash."""
    hashes = (base64.b64encode(hashlib.sha256(found).digest()).decode() for found in _IMPORT_MAP.findall(page))
    return "; ".join((" ".join(("script-src 'self'", *(f"'sha256-{each}'" for each in hashes))), *_POLICY))


@dataclass(frozen=True, slots=True)
class _File:
    content_type: str
    compressed: bytes
    plain: bytes
    tag: str


class StaticFiles:
    """Those of the package, by path."""

    def __init__(self) -> None:
        """Read all of them."""
        self._files: dict[str, _File] = {}
        self._read(files("koordinator.cli.page") / "static", "")

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def respond(self, path: str, request: Request) -> Response:
        """A file; PageError for one that is not there."""
        found = self._files.get(path)
        if found is None:
            raise PageError(404)
        headers = {**HEADERS, "ETag": found.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        headers["Content-Security-Policy"] = content_security_policy(found.plain if path.endswith(".html") else b"")
        if request.headers.get("If-None-Match") == found.tag:
            return Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Response(body=found.compressed, content_type=found.content_type, headers=headers)
        return Response(body=found.plain, content_type=found.content_type, headers=headers)

    def compressed_bytes(self) -> int:
        """Of all files together, as they are sent."""
        return sum(len(each.compressed) for each in self._files.values())

    def _read(self, folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            path = f"{prefix}{entry.name}"
            if entry.is_dir():
                self._read(entry, f"{path}/")
            elif (suffix := f".{entry.name.rpartition('.')[2]}") in _TYPES:
                plain = entry.read_bytes()
                tag = f'"{hashlib.sha256(plain).hexdigest()[:32]}"'
                self._files[path] = _File(_TYPES[suffix], gzip.compress(plain, mtime=0), plain, tag)
