"""Whatever an object holds that is created, and whatever stands in the objects that it is checked by: each webhook
answers, and none of them takes it for its own failure."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.kinds import PRIORITY_CLASSES
from tests.in_memory_api import Document
from tests.manager.broken_input.admission import Admission
from tests.manager.broken_input.bench import ManagerBench, pod
from tests.manager.broken_input.documents import BAD, CONFIGURATIONS, DOCUMENTS
from tests.real_world.garbage import FEW, TEXT, broken, changes_of, spec_changes_of, typed_changes_of

WEB = pod(
    "web",
    labels={"app": BAD, "x": "y", "quota.scheduling.koordinator.sh/name": BAD, "koordinator.sh/qosClass": "BE"},
    annotations={"scheduling.koordinator.sh/reservation-affinity": "{}", "a": "b"},
)
CONFIG_MAP: Document = {
    "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
    "data": {key: json.dumps(value) for key, value in CONFIGURATIONS.items()},
}
RESERVATION: Document = {
    "metadata": {"name": "r", "labels": {"app": BAD}},
    "spec": {"template": {"metadata": {"labels": {"app": BAD}}, "spec": WEB["spec"]}, "owners": [], "ttl": "1h"},
}
REQUESTED: dict[str, Document] = {
    "pods": WEB,
    "nodes": DOCUMENTS["Node"][1],
    "configmaps": CONFIG_MAP,
    "elasticquotas": DOCUMENTS["ElasticQuota"][1],
    "reservations": RESERVATION,
}

KNOWN_TYPES = ("pods", "nodes", "configmaps")


def send(bench: ManagerBench, resource: str, document: Document, old: Document) -> None:
    """A creation and an update."""

    async def scenario() -> None:
        bench.cluster.put(PRIORITY_CLASSES, {"metadata": {"name": "koord-batch"}, "value": 5000})
        admission = Admission(bench)
        async with admission.informers.started(5), asyncio.timeout(30):
            responses = await admission.send(resource, document, "CREATE")
            responses += await admission.send(resource, document, "UPDATE", oldObject=old)
        assert len(responses) >= 2
        assert all(response["allowed"] or response["status"]["message"] for response in responses)
        assert admission.panics == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("resource", REQUESTED)
@FEW
@given(data=st.data())
def test_garbage_in_what_is_created(resource: str, data: st.DataObject) -> None:
    document = REQUESTED[resource]
    bench = ManagerBench()
    bench.configure(CONFIGURATIONS)
    for kind, each in DOCUMENTS.values():
        bench.cluster.put(kind, each)
    changes = typed_changes_of(document) if resource in KNOWN_TYPES else spec_changes_of(document)
    send(bench, resource, broken(document, data.draw(changes)), document)


@pytest.mark.parametrize("name", ["ClusterColocationProfile", "ElasticQuota", "ElasticQuotaProfile", "Node"])
@FEW
@given(data=st.data())
def test_garbage_in_what_it_is_checked_by(name: str, data: st.DataObject) -> None:
    document = DOCUMENTS[name][1]
    garbage = broken(document, data.draw(changes_of(document)))
    bench = ManagerBench()
    bench.configure(CONFIGURATIONS)
    for kind, each in DOCUMENTS.values():
        bench.cluster.put(kind, garbage if each is document else each)
    resource = {"ElasticQuota": "pods", "ElasticQuotaProfile": "pods", "Node": "configmaps"}.get(name, "pods")
    send(bench, resource, REQUESTED[resource], REQUESTED[resource])


@pytest.mark.parametrize("key", CONFIGURATIONS)
@FEW
@given(text=TEXT)
def test_garbage_in_the_slo_configuration(key: str, text: str) -> None:
    bench = ManagerBench()
    bench.configure(CONFIGURATIONS | {key: text})
    send(bench, "nodes", DOCUMENTS["Node"][1], DOCUMENTS["Node"][1])
