"""The exceptions of koord-runtime-proxy."""

from __future__ import annotations

from pathlib import Path

from koordinator.base.errors import KoordinatorError


class RuntimeProxyError(KoordinatorError):
    """Anything that this program raises on purpose."""


class ListenError(RuntimeProxyError):
    """The proxy cannot listen on its own socket."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"--koord-runtimeproxy-endpoint={path}: cannot listen: {error.strerror or error}")
