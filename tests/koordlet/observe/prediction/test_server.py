"""The prediction server learns, keeps what it learned over restarts, and drops what has ended."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from koordinator.api.node import Node
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.ring import Retention, RingMetricCache
from koordinator.koordlet.observe.prediction.forecast import MIN_PREDICTOR, Forecast
from koordinator.koordlet.observe.prediction.options import PredictionOptions
from koordinator.koordlet.observe.prediction.server import PredictionServer
from koordinator.koordlet.options import Folders
from koordinator.koordlet.pods.node_pod import NodePod
from tests.koordlet.observe.prediction.test_forecast import make_node
from tests.koordlet.observe.prediction.test_observations import pods

ITEMS = ("sys", "koord-prod", "koord-mid", "koord-batch", "koord-free", "")
PARTS = {"__node__", *(f"__node-{item}__" for item in ITEMS)}


@dataclass
class States:
    node: Node | None = field(default_factory=lambda: make_node("8", "16Gi"))
    pods: Sequence[NodePod] = ()

    @property
    def has_synced_pods(self) -> bool:
        return bool(self.pods)


class Bench:
    """A node whose pods use as many cores as ``cores`` says, and a server that can be started anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.states = States(pods=pods(web=9000))
        self.cores = {"web": 1.0}
        self.restart()

    def restart(self, per_step: int = 12) -> None:
        """A new process: its metric cache is empty, too."""
        options = PredictionOptions(checkpoints_per_step=per_step, cold_start=timedelta())
        self.cache = RingMetricCache(
            {name: Retention(60.0, 300.0) for name in (kinds.NODE, kinds.PODS, kinds.MEMORY)}, 1 << 20
        )
        self.server = self.make(options)

    def make(self, options: PredictionOptions, memory_interval: float = 0.0) -> PredictionServer:
        context = SimpleNamespace(
            options=SimpleNamespace(prediction=options, folders=Folders.under(self.folder.parent)),
            table=SimpleNamespace(memory_interval=memory_interval),
            cache=self.cache,
            states=self.states,
            given=SimpleNamespace(clock=self.clock),
            metrics=AgentMetrics(Metrics(), "n"),
        )
        return PredictionServer(cast("AgentContext", context))

    async def run_minutes(self, minutes: int) -> None:
        """Measure, learn, and write once a minute."""
        for _ in range(minutes):
            await self.clock.advance(60)
            self.measure()
            await self.server.train()
            await self.server.keep()

    def run(self, minutes: int) -> None:
        asyncio.run(self.run_minutes(minutes))

    def measure(self) -> None:
        now = round(self.clock.now().timestamp() * 1000)
        node = {kinds.NODE_CPU_USAGE.series(): 1.0 + sum(self.cores.values()), kinds.NODE_MEMORY_USAGE.series(): 1e9}
        self.cache.append(now, node)
        self.cache.append(now, {kinds.POD_CPU_USAGE.series(pod_uid=uid): each for uid, each in self.cores.items()})
        self.cache.append(now, {kinds.POD_MEMORY_USAGE.series(pod_uid=uid): 1e8 for uid in self.cores})

    @property
    def forecast(self) -> Forecast:
        return self.server.forecast_prod(self.states.pods)

    @property
    def peak(self) -> int:
        """Milli-CPU of prod pods and the system."""
        return self.forecast.peak[MIN_PREDICTOR].cpu // 10**6

    @property
    def kept(self) -> set[str]:
        return {file.name for file in self.folder.iterdir()}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "forecasts")


def test_every_model_is_kept(bench: Bench) -> None:
    bench.run(1)
    assert bench.kept == {"web"} | PARTS


def test_what_was_learned_outlives_the_process(bench: Bench) -> None:
    bench.cores["web"] = 4.0
    bench.run(60)
    learned = bench.peak
    bench.cores["web"] = 0.1
    bench.restart()
    bench.run(1)
    assert bench.peak == learned


def test_a_restored_model_does_not_expire_for_the_time_that_the_agent_was_away(bench: Bench) -> None:
    bench.cores["web"] = 4.0
    bench.run(60)
    learned = bench.peak
    asyncio.run(bench.clock.advance(7200))
    bench.cores["web"] = 0.1
    bench.restart()
    bench.run(1)
    assert bench.peak == learned


MONTH = timedelta(days=30)


def test_a_clock_that_was_a_month_ahead_for_five_minutes_changes_no_forecast(bench: Bench) -> None:
    bench.cores["web"] = 1.0
    bench.run(120)
    learned = bench.peak
    bench.clock.set_wall(bench.clock.now() + MONTH)
    bench.cores["web"] = 4.0
    bench.run(5)
    bench.clock.set_wall(bench.clock.now() - MONTH)
    bench.cores["web"] = 1.0
    bench.run(60)
    assert bench.peak == learned


def test_what_a_clock_ahead_has_written_is_as_old_as_it_is_after_a_restart(bench: Bench) -> None:
    """A start with the right clock must not take the last samples for ones of the coming month."""
    bench.run(120)
    learned = bench.peak
    bench.clock.set_wall(bench.clock.now() + MONTH)
    bench.cores["web"] = 4.0
    bench.run(11)
    bench.clock.set_wall(bench.clock.now() - MONTH)
    bench.restart()
    bench.cores["web"] = 1.0
    bench.run(200)
    assert bench.peak == learned
    assert json.loads((bench.folder / "web").read_text())["LastUpdated"] < "2026-01-02"


def test_a_start_with_a_clock_that_is_behind_keeps_what_was_learned(bench: Bench) -> None:
    bench.cores["web"] = 4.0
    bench.run(60)
    learned = bench.peak
    bench.clock.set_wall(bench.clock.now() - 365 * timedelta(days=1))
    bench.cores["web"] = 0.1
    bench.restart()
    bench.run(1)
    assert bench.peak == learned


def test_a_model_with_more_weight_than_samples_can_have_begins_anew(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The original keeps the weights of samples that a clock ahead has dated."""
    bench.run(1)
    document = json.loads((bench.folder / "web").read_text())
    document["CPU"]["totalWeight"] *= 2.0**60
    (bench.folder / "web").write_text(json.dumps(document))
    bench.restart()
    with caplog.at_level(logging.WARNING):
        asyncio.run(bench.server.train())
    assert "the model web begins anew: totalWeight" in caplog.text


def test_a_clock_that_is_corrected_by_a_second_is_followed(bench: Bench) -> None:
    """Or else the times in the files would drift away from those of other programs."""
    bench.run(12)
    bench.clock.set_wall(bench.clock.now() + timedelta(seconds=1))
    bench.run(12)
    reference = json.loads((bench.folder / "web").read_text())["CPU"]["referenceTimestamp"]
    assert reference in ("2026-01-01T00:00:00Z", "2026-01-01T12:00:00Z")


def test_torn_files_begin_anew(bench: Bench) -> None:
    bench.cores["web"] = 4.0
    bench.run(60)
    learned = bench.peak
    for file in bench.folder.iterdir():
        file.write_text("torn")
    bench.cores["web"] = 0.1
    bench.restart()
    bench.run(1)
    assert bench.peak != learned
    json.loads((bench.folder / "web").read_text())


def test_half_a_model_is_none(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The original keeps the half that it can read, and then takes the pod to use no memory at all."""
    bench.run(1)
    document = json.loads((bench.folder / "web").read_text())
    document["Memory"]["bucketWeights"] = {"9999": 10000}
    (bench.folder / "web").write_text(json.dumps(document))
    bench.restart()
    with caplog.at_level(logging.WARNING):
        asyncio.run(bench.server.train())
    assert "the model web begins anew: bucketWeights names bucket 9999" in caplog.text


def test_the_files_of_pods_that_are_gone_are_removed_at_the_start(bench: Bench) -> None:
    bench.run(1)
    bench.states.pods = pods(other=9000)
    bench.restart()
    asyncio.run(bench.server.train())
    assert bench.kept == PARTS


def test_nothing_is_removed_while_the_pods_are_not_known(bench: Bench) -> None:
    bench.run(1)
    bench.states.pods = ()
    bench.restart()
    bench.run(60)
    assert bench.kept == {"web"} | PARTS


def test_it_learns_at_once_when_the_pods_are_known_and_then_once_an_interval(bench: Bench) -> None:
    bench.cores["web"] = 4.0
    bench.run(60)
    learned = bench.peak
    bench.restart()
    known, bench.states.pods = bench.states.pods, ()

    async def story() -> list[bool]:
        seen = []
        for second in range(63):
            if second == 1:
                bench.states.pods = known
            await bench.server.train_when_due()
            seen.append(bool(bench.forecast.peak))
            await bench.clock.advance(1)
        return seen

    assert asyncio.run(story())[:3] == [False, True, True]
    assert bench.peak == learned


def test_the_model_of_a_pod_that_ends_expires_with_its_file(bench: Bench) -> None:
    bench.run(1)
    bench.states.pods, bench.cores = pods(other=9000), {"other": 1.0}
    bench.run(30)
    assert "web" in bench.kept
    bench.run(1)
    assert "web" not in bench.kept


def test_files_are_written_in_turn_and_not_more_often_than_requested(bench: Bench) -> None:
    bench.restart(per_step=4)
    written: list[set[str]] = []
    for _ in range(11):
        bench.run(1)
        written.append({file.name for file in bench.folder.iterdir()})
        for file in bench.folder.iterdir():
            file.unlink()
    # Eight models, four at a time, and again after ten minutes.
    assert [len(names) for names in written] == [4, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4]
    assert written[0] | written[1] == {"web"} | PARTS
    assert written[10] == written[0]


def test_a_file_that_cannot_be_written_is_reported_and_the_others_are_written(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.folder.mkdir()
    (bench.folder / "web").mkdir()
    bench.run(1)
    assert "models outlive no restart: " in caplog.text
    assert "/web: " in caplog.text
    assert bench.kept >= PARTS
    assert bench.peak


def test_a_full_disk_is_said_once_and_what_was_kept_stays(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A write to /dev/full fails as one to a full disk does."""
    bench.run(1)
    kept = {file.name: file.read_bytes() for file in bench.folder.iterdir()}
    with caplog.at_level(logging.INFO):
        for _ in range(30):
            for name in kept:
                unfinished = bench.folder / f"{name}.tmp"
                unfinished.unlink(missing_ok=True)
                unfinished.symlink_to("/dev/full")
            bench.run(1)
        full = {file.name: file.read_bytes() for file in bench.folder.iterdir() if not file.is_symlink()}
        assert [record.levelname for record in caplog.records if "No space left" in record.getMessage()] == ["WARNING"]
        bench.run(11)
    assert full == kept
    assert bench.kept == kept.keys()
    assert {file.read_bytes() for file in bench.folder.iterdir()}.isdisjoint(kept.values())
    assert caplog.text.count("models are written again") == 1


def test_without_a_node_there_is_no_forecast_and_that_is_said_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.states.node = None
    caplog.set_level(logging.INFO)
    assert bench.forecast == bench.forecast == Forecast(problem="the Node has not been seen yet")
    assert caplog.text.count("forecast: the Node has not been seen yet") == 1


def test_models_learn_more_often_than_memory_is_measured(bench: Bench) -> None:
    options = PredictionOptions(training_interval=1.0, cold_start=timedelta())
    server = bench.make(options, memory_interval=5.0)
    bench.measure()
    asyncio.run(bench.clock.advance(4))
    now = round(bench.clock.now().timestamp() * 1000)
    bench.cache.append(now, {kinds.POD_CPU_USAGE.series(pod_uid="web"): 1.0})
    asyncio.run(server.train())
    assert server.forecast_prod(bench.states.pods).peak
