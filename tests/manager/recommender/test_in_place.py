"""The record of a resize stays where the resize may have been done."""

from __future__ import annotations

import asyncio

import pytest

from koordinator.api.kinds import PODS
from koordinator.api.quantity import Quantity
from koordinator.api.recommendation import APPLIED, AmountChange, ContainerChange
from koordinator.base.clock import SystemClock
from koordinator.kube.errors import ApiStatusError
from koordinator.manager.recommender.in_place import resize_in_place
from koordinator.manager.recommender.observed_pods import OBSERVED_PODS
from koordinator.manager.recommender.resize_decision import Resize
from tests.in_memory_api import ApiRequest, InMemoryApi
from tests.manager.recommender.pods import START


@pytest.mark.parametrize(("code", "is_done", "has_record"), [(403, False, False), (504, True, True)])
def test_only_a_refusal_leaves_no_record(code: int, is_done: bool, has_record: bool) -> None:
    def fault(request: ApiRequest, done: bool) -> Exception | None:
        return ApiStatusError(code, "Told", "no") if request.subresource == "resize" and done == is_done else None

    async def scenario() -> None:
        async with InMemoryApi(SystemClock()).running() as api:
            client = api.client()
            container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
            body = {"metadata": {"name": "web-0"}, "spec": {"nodeName": "n1", "containers": [container]}}
            await client.create(PODS, body, "default")
            pod = await client.get(OBSERVED_PODS, "web-0", "default")
            change = AmountChange(before=Quantity.parse("1"), after=Quantity.parse("2"))
            api.fault = fault
            resize = Resize(pod, {"main": ContainerChange(requests={"cpu": change})})
            with pytest.raises(ApiStatusError):
                await resize_in_place(client, resize, "web", START)
            found = await client.get(OBSERVED_PODS, "web-0", "default")
            await client.close()

        assert str(found.containers[0].resources.requests["cpu"]) == ("2" if is_done else "1")
        assert (APPLIED in found.metadata.annotations) == has_record

    asyncio.run(scenario())
