"""The HTTP endpoints of koord-descheduler, beside health and metrics. Imported only where it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import yaml

from koordinator.base.debug_flags import set_verbosity
from koordinator.descheduler.configuration.loading import Configuration, write_configuration
from koordinator.descheduler.program import Descheduler
from koordinator.kube.debug_flags import add_debug_flags
from koordinator.kube.pages import Request, Response, json_response
from koordinator.kube.progress import add_progress
from koordinator.kube.serving import HealthServer


def add_pages(
    server: HealthServer, configuration: Configuration, descheduler: Descheduler, is_leading: Callable[[], bool]
) -> None:
    """``/configz``: the configuration in force, as the original serves it; ``/debug/flags/v``: how much is logged;
    ``/explain/rebalance``: what the next cycle would do."""
    document = yaml.safe_load(write_configuration(configuration))
    server.add_configuration(lambda: document)
    running, ended = {"cycles": lambda: int(descheduler.is_in_cycle)}, {"cycles": lambda: descheduler.cycles}
    add_progress(server, descheduler.informers, running, ended)
    if configuration.document.enable_profiling:
        add_debug_flags(server, {"v": set_verbosity})
    answering = asyncio.Lock()

    async def explain(request: Request) -> Response:
        if not is_leading():
            return json_response({"message": "the instance is not leader"}, 503)
        if not descheduler.cycles:
            return json_response({"message": "no descheduling cycle has ended yet: try again in a moment"}, 503)
        # A plan for thousands of nodes takes seconds: one at a time.
        async with answering:
            return json_response(await descheduler.explain_rebalance())

    server.add_route("/explain/rebalance", explain)
