"""Serves runtime proxies, which call the hooks before they let a pod or a container start.

They find the server by a file in their folder, and call one method for each stage (pkg/koordlet/runtimehooks/
proxyserver, config.go).
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from koordinator.base.errors import KoordinatorError
from koordinator.base.said_once import SaidOnce
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
    """Runtime proxies cannot be served, or the registration cannot be written."""


class HookServer:
    """``run`` it beside the loops."""

    def __init__(self, context: AgentContext, hooks: StartingHooks) -> None:
        self._options = context.options.hooks
        self._hooks = hooks
        self._states = context.states
        self._clock = context.given.clock
        self._connections = context.connections
        self._said = SaidOnce(logger)
        self.is_serving = False

    async def run(self) -> None:
        """What keeps it from serving is said, and tried again."""
        if self._options.socket:
            await self._until_pools_are_known()
        while self._options.socket:
            try:
                await self._serve(self._options.socket)
            except* (RegistrationError, OSError) as errors:
                text = "; ".join(str(error) for error in errors.exceptions)
                with self._said.round():
                    self._said.say(f"runtime proxies are not served: {text}")
            await self._clock.sleep(_RETRY)

    async def _until_pools_are_known(self) -> None:
        """Until then a container would get no CPUs from the hooks, and could start on those of others.

        A node of which they cannot be found out is served after a while all the same.
        """
        end = self._clock.monotonic() + _PATIENCE
        while self._states.topology is None and self._clock.monotonic() < end:
            await self._clock.sleep(_LOOK_AGAIN)
        if self._states.topology is None:
            logger.warning("runtime proxies are served although it is not known yet which CPUs pods share")

    async def _serve(self, path: str) -> None:
        clear_socket(Path(path))
        stages = self._hooks.hooks.stages

        def listening() -> None:
            register(self._options, stages)
            self.is_serving = True
            self._said.end()
            logger.info("runtime proxies are served at %s: %s", path, ", ".join(stages))

        try:
            await GrpcServer(handlers(self._hooks), self._connections).run(path, listening)
        finally:
            self.is_serving = False


def handlers(hooks: StartingHooks) -> dict[str, Handler]:
    """One for each method, by its path."""
    return {f"/{_SERVICE}/{stage}Hook": partial(_respond, hooks, stage) for stage in Stage}


async def _respond(hooks: StartingHooks, stage: Stage, message: bytes) -> bytes:
    # With the library of protocol buffers, 3 MiB that a node without a runtime proxy does not need.
    from koordinator.koordlet.enforce.hooks.proxy_messages import respond

    return respond(hooks, stage, message)


def clear_socket(path: Path) -> None:
    """Make the folder, and remove the socket of an earlier run. RegistrationError if that fails."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
            raise RegistrationError(f"{path}: there is a file that is not a socket")
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RegistrationError(f"{path}: {error.strerror}") from error


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
