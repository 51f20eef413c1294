"""The HTTP servers of a program, by listen address.

The modules of pages are imported only when the first server starts: a program that serves nothing, or fails before,
does not need them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from koordinator.base.clock import Clock
from koordinator.base.listen_address import ListenAddress
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.kube.health import HealthChecks

if TYPE_CHECKING:
    from koordinator.base.program import Process
    from koordinator.kube.secure_options import SecureOptions
    from koordinator.kube.secure_serving import SecureServing
    from koordinator.kube.serving import HealthServer

logger = logging.getLogger(__name__)

Routes = Callable[["HealthServer"], None]
"""Adds routes to a server before it starts; the place to import the request handlers."""


@dataclass(frozen=True, slots=True)
class _Planned:
    address: ListenAddress
    health: HealthChecks
    routes: Sequence[Routes]
    secure: SecureServing | None
    profiles: bool
    dispensable: str


class Servers:
    """The planned servers: ``add`` them, then enter this as a context, in which they serve. Each server serves health
    and metrics, beside its own routes."""

    def __init__(self, metrics: Metrics, clock: Clock, connections: ProgramConnections | None = None) -> None:
        """``connections`` are those to all servers of the program, if it has others than these."""
        self._metrics = metrics
        self._connections = connections or ProgramConnections(metrics, clock)
        self._clock = clock
        self._planned: list[_Planned] = []
        self._running: list[HealthServer] = []
        self._open = AsyncExitStack()

    def add(
        self,
        address: ListenAddress,
        *routes: Routes,
        health: HealthChecks | None = None,
        secure: SecureServing | None = None,
        profiles: bool = False,
        dispensable: str = "",
    ) -> None:
        """Serve at ``address`` unless it is empty; with ``secure`` over TLS, and the API server says who may see the
        pages.

        ``profiles`` adds ``/debug/pprof``. If ``dispensable`` is set, such as to ``profiles are not served, see
        --pprof-addr``, an unavailable address is logged as a warning with this text; otherwise it is an OSError at the
        start.
        """
        if address.port:
            self._planned.append(_Planned(address, health or HealthChecks(), routes, secure, profiles, dispensable))

    def add_secure(self, options: SecureOptions, program: str, process: Process, health: HealthChecks) -> None:
        """Serve where ``options`` say, for a program that has nothing else to ask an API server: it reaches one as a
        pod does, unless the options name a kubeconfig, and loads no client while the port is off."""
        address = options.listen_address()
        if address.port:
            from koordinator.kube.connect import ClientOptions, user_agent
            from koordinator.kube.secure_serving import SecureServing

            reaching = ClientOptions(user_agent=user_agent(program), metrics=process.metrics)
            self.add(address, health=health, secure=SecureServing(options, reaching, process))

    async def __aenter__(self) -> Self:
        try:
            for planned in self._planned:
                await self._start(planned)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()

    async def _start(self, planned: _Planned) -> None:
        from koordinator.kube.serving import HealthServer

        address = planned.address
        tls, access = None, None
        if planned.secure is not None:
            certificate, access = await self._open.enter_async_context(planned.secure.open())
            tls = certificate.context
        server = HealthServer(
            self._metrics,
            planned.health,
            host=address.host,
            port=address.port,
            field=address.field,
            tls=tls,
            connections=self._connections,
            access=access,
        )
        for add_routes in planned.routes:
            add_routes(server)
        if planned.profiles:
            from koordinator.kube.profile_pages import ProfilePages

            ProfilePages(self._clock).add_to(server)
        try:
            await server.start()
        except OSError as error:
            if not planned.dispensable:
                raise
            logger.warning("%s: %s", planned.dispensable, error)
        else:
            self._running.append(server)

    async def _stop(self) -> None:
        while self._running:
            await self._running.pop().stop()
        await self._open.aclose()
