"""What can go wrong in koord-runtime-proxy."""

from __future__ import annotations

from pathlib import Path

from koordinator.base.errors import KoordinatorError


class RuntimeProxyError(KoordinatorError):
    """Anything that this program raises on purpose."""


class ListenError(RuntimeProxyError):
    """The proxy's own socket cannot be had."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"--koord-runtimeproxy-endpoint={path}: cannot listen: {error.strerror or error}")
