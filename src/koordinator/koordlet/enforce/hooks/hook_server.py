"""Serves runtime proxies, which call the hooks before they let a pod or a container start.

They find the server by a file in their folder, and call one method for each stage (pkg/koordlet/runtimehooks/
proxyserver, config.go).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from koordinator.base.errors import KoordinatorError
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.enforce.hooks.options import HookOptions
from koordinator.koordlet.enforce.hooks.registry import Stage
from koordinator.koordlet.enforce.hooks.starting import StartingHooks
from koordinator.node.grpc_server import GrpcServer, Handler

logger = logging.getLogger(__name__)

_SERVICE: Final = "runtime.v1alpha1.RuntimeHookService"
_NAME: Final = "koordlet.json"
_RETRY: Final = 10.0
"""Seconds until it is tried again to serve at the socket."""
_PATIENCE: Final = 30.0
"""Seconds that proxies are not served because it is not known which CPUs pods share."""
_LOOK_AGAIN: Final = 0.2


class RegistrationError(KoordinatorError):
    """The registration cannot be written."""


class HookServer:
    """``run`` it beside the loops."""

    def __init__(self, context: AgentContext, hooks: StartingHooks) -> None:
        self._options = context.options.hooks
        self._hooks = hooks
        self._states = context.states
        self._clock = context.given.clock
        self._server = GrpcServer(handlers(hooks), context.connections)

    @property
    def is_serving(self) -> bool:
        return self._server.is_listening

    async def run(self) -> None:
        if self._options.socket:
            await self._until_pools_are_known()
            await self._server.keep_serving(Path(self._options.socket), "runtime proxies", _RETRY, self._listening)

    async def _until_pools_are_known(self) -> None:
        """Until then a container would get no CPUs from the hooks, and could start on those of others.

        A node of which they cannot be found out is served after a while all the same.
        """
        end = self._clock.monotonic() + _PATIENCE
        while self._states.topology is None and self._clock.monotonic() < end:
            await self._clock.sleep(_LOOK_AGAIN)
        if self._states.topology is None:
            logger.warning("runtime proxies are served although it is not known yet which CPUs pods share")

    def _listening(self) -> None:
        stages = self._hooks.hooks.stages
        register(self._options, stages)
        logger.info("runtime proxies are served at %s: %s", self._options.socket, ", ".join(stages))


def handlers(hooks: StartingHooks) -> dict[str, Handler]:
    """One for each method, by its path."""
    return {f"/{_SERVICE}/{stage}Hook": partial(_respond, hooks, stage) for stage in Stage}


async def _respond(hooks: StartingHooks, stage: Stage, message: bytes) -> bytes:
    # With the library of protocol buffers, 3 MiB that a node without a runtime proxy does not need.
    from koordinator.koordlet.enforce.hooks.proxy_messages import respond

    return respond(hooks, stage, message)


def register(options: HookOptions, stages: Iterable[Stage]) -> None:
    """Register at runtime proxies for the stages, with the socket. RegistrationError if the file cannot be written."""
    document = {
        "remote-endpoint": options.endpoint,
        "failure-policy": options.failure_policy,
        "runtime-hooks": [stage.value for stage in stages if stage not in options.disabled_stages],
    }
    folder = Path(options.registration_folder)
    # Proxies look at every file whose name ends in json, and must not see half of one.
    fresh = folder / f"{_NAME}.new"
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh.write_text(json.dumps(document, indent="\t"))
        os.replace(fresh, folder / _NAME)
    except OSError as error:
        raise RegistrationError(f"{folder}: {error.strerror}") from error
