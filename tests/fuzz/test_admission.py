"""Whatever an object holds that is created, and whatever stands in the objects that it is checked by: each webhook
answers, and none of them takes it for its own failure."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Final

import pytest

from koordinator.api.kinds import PRIORITY_CLASSES
from tests.fuzz.readings import bounded
from tests.in_memory_api import Document
from tests.manager.broken_input.admission import Admission
from tests.manager.broken_input.bench import ManagerBench, pod
from tests.manager.broken_input.documents import BAD, CONFIGURATIONS, DOCUMENTS
from tests.manager.webhook.reviews import review
from tests.real_world.garbage import Garbage

_WEB: Final = pod(
    "web",
    labels={"app": BAD, "x": "y", "quota.scheduling.koordinator.sh/name": BAD, "koordinator.sh/qosClass": "BE"},
    annotations={"scheduling.koordinator.sh/reservation-affinity": "{}", "a": "b"},
)
_CONFIG_MAP: Final[Document] = {
    "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
    "data": {key: json.dumps(value) for key, value in CONFIGURATIONS.items()},
}
_RESERVATION: Final[Document] = {
    "metadata": {"name": "r", "labels": {"app": BAD}},
    "spec": {"template": {"metadata": {"labels": {"app": BAD}}, "spec": _WEB["spec"]}, "owners": [], "ttl": "1h"},
}
_REQUESTED: Final[dict[str, Document]] = {
    "pods": _WEB,
    "nodes": DOCUMENTS["Node"][1],
    "configmaps": _CONFIG_MAP,
    "elasticquotas": DOCUMENTS["ElasticQuota"][1],
    "reservations": _RESERVATION,
}
_OF_KNOWN_TYPES: Final = ("pods", "nodes", "configmaps")
_CHECKED_BY: Final = ("ClusterColocationProfile", "ElasticQuota", "ElasticQuotaProfile", "Node")
_NAMES: Final = (BAD, "good", "default", "koordinator-root-quota")


def _bench() -> ManagerBench:
    bench = ManagerBench()
    bench.configure(CONFIGURATIONS)
    for kind, each in DOCUMENTS.values():
        bench.cluster.put(kind, each)
    bench.cluster.put(PRIORITY_CLASSES, {"metadata": {"name": "koord-batch"}, "value": 5000})
    return bench


async def _answered(admission: Admission, resource: str, document: Document, old: Document) -> None:
    """A creation and an update are answered."""
    responses = await admission.send(resource, document, "CREATE")
    responses += await admission.send(resource, document, "UPDATE", oldObject=old)
    assert len(responses) >= 2
    assert all(response["allowed"] or response["status"]["message"] for response in responses)
    assert admission.panics == 0


@pytest.mark.parametrize("resource", _REQUESTED)
def test_garbage_in_what_is_created(resource: str, seeds: range) -> None:
    sound = _REQUESTED[resource]

    async def scenario() -> None:
        admission = Admission(_bench())
        async with admission.informers.started(5):
            for seed in seeds:
                garbage = Garbage(Random(seed), _NAMES)
                broken = garbage.texts(sound) if resource in _OF_KNOWN_TYPES else garbage.document(sound)
                try:
                    await _answered(admission, resource, broken, sound)
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}: {error}: {json.dumps(broken)[:2000]}") from error

    with bounded():
        asyncio.run(scenario())


@pytest.mark.parametrize("resource", _REQUESTED)
def test_a_review_that_is_no_json_is_refused_with_a_reason(resource: str, seeds: range) -> None:
    body = review(object=_REQUESTED[resource])

    async def scenario() -> None:
        admission = Admission(_bench())
        async with admission.informers.started(5):
            for seed in seeds:
                for webhook in admission.webhooks.values():
                    answer = json.loads(await webhook.respond(Garbage(Random(seed)).body(body)))["response"]
                    assert answer["allowed"] or answer["status"]["message"], f"seed {seed}, {webhook}"
        assert admission.panics == 0

    with bounded():
        asyncio.run(scenario())


@pytest.mark.parametrize("name", _CHECKED_BY)
def test_garbage_in_what_it_is_checked_by(name: str, seeds: range) -> None:
    kind, sound = DOCUMENTS[name]
    resource = "configmaps" if name == "Node" else "pods"
    bench = _bench()

    async def scenario() -> None:
        admission = Admission(bench)
        async with admission.informers.started(5):
            for seed in seeds:
                bench.cluster.put(kind, Garbage(Random(seed), _NAMES).document(sound))
                for _ in range(10):
                    await bench.clock.advance(0)
                await _answered(admission, resource, _REQUESTED[resource], _REQUESTED[resource])

    with bounded():
        asyncio.run(scenario())
