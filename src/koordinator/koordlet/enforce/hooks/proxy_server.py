"""The gRPC service that runtime proxies call before they let a pod or a container start
(pkg/koordlet/runtimehooks/proxyserver)."""

from __future__ import annotations

from functools import partial
from typing import Final

from koordinator.koordlet.enforce.hooks.registry import Stage
from koordinator.koordlet.enforce.hooks.starting import StartingHooks
from koordinator.node.grpc_server import Handler

_SERVICE: Final = "runtime.v1alpha1.RuntimeHookService"


def handlers(hooks: StartingHooks) -> dict[str, Handler]:
    """One for each method, by its path."""
    return {f"/{_SERVICE}/{stage}Hook": partial(_respond, hooks, stage) for stage in Stage}


async def _respond(hooks: StartingHooks, stage: Stage, message: bytes) -> bytes:
    from koordinator.koordlet.enforce.hooks.proxy_messages import respond

    return respond(hooks, stage, message)
