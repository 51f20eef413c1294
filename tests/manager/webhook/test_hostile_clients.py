"""The webhook server among hostile clients: every pod of an API server is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.tls import TLSSettings, build_context
from koordinator.manager.webhook.admission import ALLOWED
from koordinator.manager.webhook.certificate_files import write_files
from tests.manager.webhook.making import NOW, certificates
from tests.manager.webhook.reviews import Handler, review
from tests.manager.webhook.serving import HOST, serving
from tests.real_world.attacked_server import LIMITS, AttackedServer, outlive
from tests.real_world.hostile_clients import HOSTILE_CLIENTS, HostileClient, Target
from tests.waiting import PATIENCE

CERTIFICATES = certificates(HOST)
REQUEST = b"POST /mutate-pod HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(review()), review())


@pytest.mark.parametrize("client", HOSTILE_CLIENTS, ids=str)
def test_ordinary_clients_are_served_beside(client: HostileClient, tmp_path: Path) -> None:
    async def scenario() -> None:
        metrics, clock = Metrics(), ManualClock()
        write_files(tmp_path, CERTIFICATES, NOW)
        handlers = (Handler("/mutate-pod", lambda _: ALLOWED),)
        async with (
            asyncio.timeout(PATIENCE),
            serving(tmp_path, handlers, metrics, clock=clock, limits=LIMITS) as server,
        ):
            tls = build_context(TLSSettings(authority=CERTIFICATES.authority))
            tls.check_hostname = False
            labels = {"port": str(server.bound_port)}
            attacked = AttackedServer(
                Target(HOST, server.bound_port, REQUEST, tls),
                clock,
                lambda: metrics.registry.get_sample_value("koordinator_server_connections", labels) or 0,
            )
            await outlive(attacked, client)

    uvloop.run(scenario())
