"""``/livez``, ``/readyz`` and ``/healthz``, in the words of the real server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from koordinator.cluster.errors import unknown_path

HEALTH_ENDPOINTS: Final = ("healthz", "livez", "readyz")
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache, no-store, must-revalidate"}
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """``why`` tells what is wrong; empty text when nothing is."""

    name: str
    why: Callable[[], str]


def _answers() -> str:
    """Whoever hears it has reached the server."""
    return ""


PING = HealthCheck("ping", _answers)


@dataclass(frozen=True, slots=True)
class Health:
    """The checks of each endpoint, in the order in which they are told."""

    live: Sequence[HealthCheck] = (PING,)
    """What a new start of the server may cure. A store that cannot write is not among it: it goes on by itself when its
    disk does, and reads are served meanwhile."""
    ready: Sequence[HealthCheck] = (PING,)

    def of(self, endpoint: str) -> Sequence[HealthCheck]:
        """``livez``, ``readyz`` or ``healthz``."""
        return self.live if endpoint == "livez" else self.ready


def answer_health(health: Health, parts: Sequence[str], request: web.BaseRequest) -> web.StreamResponse:
    """``parts``: the endpoint and, for a single check, its name. Raises ApiError 404 for an unknown check.

    Who has no token hears which check failed and not why, as on the real server.
    """
    endpoint, checks = parts[0], health.of(parts[0])
    if len(parts) > 1:
        return _single(checks, "/".join(parts[1:]))
    with_reasons = bool(request.headers.get("Authorization"))
    lines, failed = _lines(checks, set(request.query.getall("exclude", ())), with_reasons=with_reasons)
    if failed:
        _LOG.warning("%s check failed: %s", endpoint, "; ".join(f"{name}: {why}" for name, why in failed.items()))
        return _text("".join([*lines, f"{endpoint} check failed\n"]), 500)
    if "verbose" not in request.query:
        return _text("ok")
    return _text("".join([*lines, f"{endpoint} check passed\n"]))


def _lines(
    checks: Sequence[HealthCheck], excluded: set[str], *, with_reasons: bool
) -> tuple[list[str], dict[str, str]]:
    lines: list[str] = []
    failed: dict[str, str] = {}
    for check in checks:
        if check.name in excluded:
            lines.append(f"[+]{check.name} excluded: ok\n")
        elif why := check.why():
            failed[check.name] = why
            lines.append(f"[-]{check.name} failed: {why if with_reasons else 'reason withheld'}\n")
        else:
            lines.append(f"[+]{check.name} ok\n")
    if unknown := sorted(excluded - {check.name for check in checks}):
        quoted = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}\n")
    return lines, failed


def _single(checks: Sequence[HealthCheck], name: str) -> web.StreamResponse:
    check = next((check for check in checks if check.name == name), None)
    if check is None:
        raise unknown_path()
    why = check.why()
    return _text(f"internal server error: {why}\n", 500) if why else _text("ok")


def _text(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, headers=_HEADERS)
