"""The index of Reservations by their labels, with our scheduler and with the Go original's: equal decisions, messages,
documents and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from koordinator.api.codec import decode_any
from koordinator.api.kinds import RESERVATIONS
from koordinator.kube.client import KubeClient
from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms
from tests.real.quota_runs import connected, prepare
from tests.real.reservation_runs import Outcome, Step, act, clean, pod, reservation, running, watched_reservations

_SERVICE: Final = "/apis/v1/plugins/Reservation/reservationSelectorIndex"
_INDEX: Final = {"enabled": True, "keyPrefixes": ["job-", " "], "keys": ["team", "rank", "team"]}
_METRIC: Final = "scheduler_reservation_selector_index_"
_SHARED: Final[Any] = {"allocateOnce": False}


def _selecting(name: str, **labels: str) -> dict[str, Any]:
    selector = {key.replace("_", "-"): value for key, value in labels.items()}
    return pod(name, "500m", affinity={"reservationSelector": selector})


_STEPS: Final[tuple[Step, ...]] = (
    reservation("r1", "1", node="node-0", labels={"team": "x", "job-1": "x"}, **_SHARED),
    reservation("r2", "1", node="node-0", labels={"team": "y", "job-2": "y"}, **_SHARED),
    reservation("r3", "1", node="node-1", labels={"team": "y", "job-1": "z"}, **_SHARED),
    reservation("r4", "1", node="node-1", **_SHARED),
    _selecting("whole-key", team="x"),
    _selecting("prefix", job_1="x"),
    _selecting("both", team="y", job_2="y"),
    _selecting("neither", other="x"),
    _selecting("nobody", team="z"),
    _selecting("nobody-under-a-prefix", job_3="z"),
    _selecting("another-label-too", team="x", other="x"),
    pod("any", "500m", affinity={}),
)


@dataclass(frozen=True)
class Seen:
    outcome: Outcome
    summary: Any
    details: Any
    buckets: frozenset[float]
    """The bounds of the histogram."""
    results: frozenset[str]
    """Of look-ups."""


@pytest.fixture(scope="module")
def seen(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Seen, Seen]]:
    """Ours and the original's, one after the other on one cluster."""
    folder = tmp_path_factory.mktemp("selector-index")
    plane = ControlPlane(real_programs.kubernetes, folder / "cluster")
    plane.start()

    async def run(who: str, port: int) -> Seen:
        async with connected(plane) as client:
            if who == "ours":
                await prepare(client, cpu="4", memory="8Gi")
            try:
                async with watched_reservations(client) as watched:
                    return await _look(client, await act(watched, _STEPS), f"http://127.0.0.1:{port}")
            finally:
                await clean(client)

    def played(who: str) -> Seen:
        (port,) = free_ports(1)
        (folder / who).mkdir()
        with running(who, real_programs, plane, folder / who, port=port, reservationSelectorIndex=_INDEX):
            return asyncio.run(run(who, port))

    try:
        yield played("ours"), played("original")
    finally:
        plane.stop()


async def _look(client: KubeClient, outcome: Outcome, address: str) -> Seen:
    names = {each.metadata.uid: each.metadata.name for each in (await client.list(RESERVATIONS)).items}
    async with aiohttp.ClientSession(address) as session:
        texts = []
        for path in (_SERVICE, f"{_SERVICE}?detail=true", "/metrics"):
            async with session.get(path) as response:
                texts.append(await response.text())
    found = [sample for family in text_string_to_metric_families(texts[2]) for sample in family.samples]
    buckets = (float(each.labels["le"]) for each in found if each.name == f"{_METRIC}candidates_count_bucket")
    results = (each.labels["result"] for each in found if each.name == f"{_METRIC}query_total")
    summary, details = (_named(decode_any(text.encode()), names) for text in texts[:2])
    return Seen(outcome, summary, details, frozenset(buckets), frozenset(results))


def _named(document: Any, names: dict[str, str]) -> Any:
    """With names in place of uids; lists that the original makes from maps have no order."""
    if isinstance(document, dict):
        return {key: _named(value, names) for key, value in document.items()}
    if isinstance(document, list):
        return sorted(names.get(each, each) for each in document)
    return document


@pytest.mark.parametrize("name", [each["metadata"]["name"] for each in _STEPS if isinstance(each, dict)])
def test_decisions_and_messages_are_the_original_s(seen: tuple[Seen, Seen], name: str) -> None:
    ours, theirs = ((each.outcome.pods.get(name), each.outcome.reservations.get(name)) for each in seen)
    assert ours == theirs


def test_the_document_is_the_original_s(seen: tuple[Seen, Seen]) -> None:
    ours, theirs = seen
    assert ours.summary == theirs.summary


def test_the_detailed_document_is_the_original_s(seen: tuple[Seen, Seen]) -> None:
    ours, theirs = seen
    assert ours.details == theirs.details


def test_the_metrics_are_the_original_s(seen: tuple[Seen, Seen]) -> None:
    ours, theirs = seen
    assert ours.results == {"hit", "miss"}
    assert (ours.results, ours.buckets) == (theirs.results, theirs.buckets)
