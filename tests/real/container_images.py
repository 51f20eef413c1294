"""Container images made of busybox, under the names that tests want, and a registry that serves them on loopback."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIGURATION = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_SET_USER_ID = 0o4755


@dataclass(frozen=True)
class File:
    """A file of a layer; its path is relative to the root of the image."""

    path: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Image:
    """An image under some names, each with its registry and its tag."""

    names: tuple[str, ...]
    layers: tuple[bytes, ...]
    settings: tuple[tuple[str, Any], ...] = ()
    """What the ``config`` of its configuration has: Cmd, User, Labels."""

    @cached_property
    def configuration(self) -> bytes:
        document = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"], **dict(self.settings)},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in self.layers]},
        }
        return json.dumps(document).encode()

    @cached_property
    def manifest(self) -> bytes:
        """That of a registry."""
        document = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIGURATION, self.configuration),
            "layers": [_descriptor(_LAYER, layer) for layer in self.layers],
        }
        return json.dumps(document).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def busybox_layer() -> bytes:
    """The static busybox of this machine and all its applets, users, and a folder for everybody."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        _add(files, File("bin/busybox", Path(os.path.realpath(busybox)).read_bytes(), 0o755))
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                # Not symbolic links: who masks one applet would mask all.
                link.type, link.linkname, link.mode = tarfile.LNKTYPE, "bin/busybox", 0o755
                files.addfile(link)
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        files.addfile(folder)
        _add(
            files, File("etc/passwd", b"root:x:0:0::/:/bin/sh\nwww-data:x:33:33::/:/bin/sh\nnobody:x:65534:65534::/:\n")
        )
        _add(files, File("etc/group", b"root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n"))
    return layer.getvalue()


def layer_of(*files: File) -> bytes:
    """A layer with some files."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as out:
        for file in files:
            _add(out, file)
    return layer.getvalue()


def _add(files: tarfile.TarFile, file: File) -> None:
    entry = tarfile.TarInfo(file.path)
    entry.size, entry.mode = len(file.content), file.mode
    files.addfile(entry, io.BytesIO(file.content))


def write_archive(path: Path, images: Iterable[Image]) -> None:
    """A file for ``ctr images import``."""
    listed: list[Mapping[str, Any]] = []
    contents: dict[str, bytes] = {}
    for image in images:
        layers = {f"{_digest(layer)[7:]}.tar": layer for layer in image.layers}
        configuration = f"{_digest(image.configuration)[7:]}.json"
        contents |= {configuration: image.configuration, **layers}
        listed.append({"Config": configuration, "RepoTags": image.names, "Layers": list(layers)})
    with tarfile.open(path, "w") as out:
        for name, content in {**contents, "manifest.json": json.dumps(listed).encode()}.items():
            _add(out, File(name, content))


@contextmanager
def registry(images: Iterable[Image]) -> Iterator[int]:
    """Serve images by the distribution protocol, as a mirror of whatever registries their names have; its port."""
    contents: dict[str, tuple[str, bytes]] = {}
    for image in images:
        blobs = [(_MANIFEST, image.manifest), (_CONFIGURATION, image.configuration)]
        blobs += [(_LAYER, layer) for layer in image.layers]
        contents |= {_digest(content): (kind, content) for kind, content in blobs}
        contents |= dict.fromkeys(image.names, (_MANIFEST, image.manifest))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._response(with_body=False)

        def do_GET(self) -> None:
            self._response(with_body=True)

        def _response(self, *, with_body: bool) -> None:
            kind, content = contents.get(_wanted(self.path), ("text/plain", b""))
            self.send_response(200 if content else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Docker-Content-Digest", _digest(content))
            self.end_headers()
            if with_body:
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _wanted(path: str) -> str:
    """A digest, or the whole name of an image: ``/v2/NAME/manifests/TAG?ns=REGISTRY``."""
    url = urlsplit(path)
    name, _, reference = url.path.removeprefix("/v2/").rpartition("/")
    if ":" in reference:
        return reference
    (host,) = parse_qs(url.query).get("ns", [""])
    return f"{host}/{name.removesuffix('/manifests')}:{reference}"


def compiled(source: str, folder: Path) -> bytes:
    """A small program in C as a static executable."""
    (folder / "program.c").write_text(source)
    command = ["gcc", "-O1", "-static", "-o", str(folder / "program"), str(folder / "program.c")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return (folder / "program").read_bytes()


def set_user_id(path: str, content: bytes) -> File:
    """A program that runs as root, whoever starts it."""
    return File(path, content, _SET_USER_ID)
