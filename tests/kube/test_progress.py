"""The page that says how far a program has come: what it has read of the API, and what it still works on."""

from __future__ import annotations

import asyncio
import json
from random import Random

import aiohttp

from koordinator.api.kinds import NODES, PODS
from koordinator.base.metrics import Metrics
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.progress import PATH, add_progress
from koordinator.kube.serving import HealthServer
from tests.in_memory_api import InMemoryApi
from tests.waiting import wait_for


def test_it_says_what_has_been_read_what_is_in_hand_and_what_is_done() -> None:
    api = InMemoryApi()

    async def scenario() -> None:
        informers = InformerSet(api.client(), clock=api.clock, random=Random(1))
        nodes = informers.informer(NODES)
        informers.informer(PODS, field_selector="spec.nodeName!=")
        server = HealthServer(Metrics())
        add_progress(server, informers, {"keys": lambda: 3}, {"cycles": lambda: 7})
        await server.start()
        try:
            async with informers.started(), aiohttp.ClientSession() as session:
                api.put(NODES, {"metadata": {"name": "a"}})
                await wait_for(lambda: nodes.get("a") is not None)
                async with session.get(f"http://127.0.0.1:{server.bound_port}{PATH}") as response:
                    document = json.loads(await response.read())
        finally:
            await server.stop()
        version = api.document(NODES, "a")["metadata"]["resourceVersion"]
        assert document["seen"]["nodes"] == version
        assert int(document["seen"]["pods spec.nodeName!="]) < int(version)
        assert (document["inHand"], document["done"]) == ({"keys": 3}, {"cycles": 7})

    asyncio.run(scenario())
