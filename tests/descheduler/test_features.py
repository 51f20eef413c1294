"""The feature gates of koord-descheduler."""

from __future__ import annotations

import asyncio
from random import Random
from typing import ClassVar

import pytest

from koordinator.api.codec import to_document
from koordinator.api.kinds import NODES, PODS
from koordinator.base.clock import ManualClock
from koordinator.base.program import Process
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.command_line import parse_options
from koordinator.descheduler.configuration.loading import resolve
from koordinator.descheduler.features import WORKING, make_features, remarks
from koordinator.descheduler.framework import DeschedulePlugin, Plan, Snapshot
from koordinator.descheduler.main import BUILT_IN
from koordinator.descheduler.program import Descheduler
from koordinator.kube.events import EventBroadcaster
from tests.descheduler.clusters import NOW, make_node
from tests.descheduler.test_program_faults import DOCUMENT, EVICTOR
from tests.in_memory_api import InMemoryApi

_OF_PODS = {"PreemptionPolicyTransformer", "PriorityTransformer", "ReplaceResourcesTransformer"}


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("", set()),
        ("NodeDrain=true", {"NodeDrain"}),
        ("AllAlpha=true", {"NodeDrain", "GenericWorkload", *_OF_PODS}),
        ("AllBeta=true", {"DisablePVCReservation"}),
    ],
)
def test_gates_that_are_on(text: str, on: set[str]) -> None:
    assert parse_options([f"--feature-gates={text}"]).gates == on


@pytest.mark.parametrize("name", sorted(make_features()))
def test_a_gate_works_or_says_why_it_has_no_effect(name: str) -> None:
    remarks_on_it = [each for each in parse_options([f"--feature-gates={name}=true"]).remarks if name in each]
    assert [each.partition(" has no effect: ")[0] for each in remarks_on_it] == (
        [] if name in WORKING else [f"feature gate {name}"]
    )


def test_an_unknown_gate_is_refused_with_those_that_are_near(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--feature-gates=NodeDrian=true"])
    assert "did you mean NodeDrain?" in capsys.readouterr().err


class Seeing(DeschedulePlugin):
    """Notes the priorities of the pods that it is shown."""

    name = "Seeing"
    seen: ClassVar[list[int | None]] = []

    def deschedule(self, snapshot: Snapshot) -> Plan:
        self.seen[:] = [pod.spec.priority for pod in snapshot.pods_on("a")]
        yield from ()


@pytest.mark.parametrize(("gates", "priority"), [(frozenset(), None), (frozenset({"PriorityTransformer"}), 5500)])
def test_a_gate_that_changes_how_pods_are_seen_does_so(gates: frozenset[str], priority: int | None) -> None:
    async def run() -> None:
        api = InMemoryApi(clock)
        for name in ("a", "b"):
            api.put(NODES, to_document(make_node(name)))
        labels = {"koordinator.sh/priority-class": "koord-batch"}
        api.put(PODS, {"metadata": {"name": "p", "namespace": "default", "labels": labels}, "spec": {"nodeName": "a"}})
        (profile,) = DOCUMENT["profiles"]
        plugins = {"evict": EVICTOR, "filter": EVICTOR, "deschedule": {"enabled": [{"name": "Seeing"}]}}
        document = {**DOCUMENT, "profiles": [{**profile, "plugins": plugins}]}
        catalogue = Catalogue({**BUILT_IN, "Seeing": Seeing})
        client, stop = api.client(), asyncio.Event()
        events = EventBroadcaster(client, program="koord-descheduler", clock=clock, random=Random(1))
        process = Process(clock=clock, random=Random(1), stop=stop)
        made = Descheduler(client, events, resolve(document, "", catalogue), process, gates)
        async with asyncio.timeout(20), made.informers.started(20):
            await made.run_cycle()

    clock = ManualClock(start=NOW)
    asyncio.run(run())
    assert Seeing.seen == [priority]


@pytest.mark.parametrize(
    ("gates", "plugins", "said"),
    [
        (["NodeDrain"], ["LowNodeLoad", "DefaultEvictor"], True),
        (["NodeDrain"], ["MigrationController"], False),
        ([], ["DefaultEvictor"], False),
    ],
)
def test_drains_that_nobody_would_carry_out_are_remarked_on(gates: list[str], plugins: list[str], said: bool) -> None:
    assert any("NodeDrain" in remark for remark in remarks(gates, plugins)) is said
