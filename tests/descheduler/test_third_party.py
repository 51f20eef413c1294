"""The example of docs/descheduler.md: installed as a package, named in a profile, and its pods leave."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from koordinator.api.codec import to_document
from koordinator.api.kinds import NODES, PODS
from koordinator.api.timestamps import format_time
from koordinator.base.clock import ManualClock
from koordinator.base.errors import ConfigurationError
from koordinator.base.program import Process
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.loading import load_configuration, resolve
from koordinator.descheduler.main import BUILT_IN
from koordinator.descheduler.program import Descheduler
from koordinator.kube.events import EventBroadcaster
from tests.descheduler.clusters import NOW, make_node, make_pod
from tests.descheduler.test_program_faults import DOCUMENT, EVICTOR
from tests.in_memory_api import InMemoryApi

EXAMPLE = Path(__file__).parents[2] / "docs/examples/descheduler-plugin"
PROD, BATCH = 9500, 5500


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example is installed, as its users would do it but without a network."""
    target = tmp_path_factory.mktemp("packages")
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check", "--quiet")
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", target, EXAMPLE], check=True)
    return target


@pytest.fixture(autouse=True)
def installed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(packages)
    yield
    sys.modules.pop("old_batch_pods", None)


def api_with_pods(clock: ManualClock) -> InMemoryApi:
    """Two batch pods, of which one has run for 13 hours, and a prod pod that has, too."""
    api = InMemoryApi(clock)
    for node in ("a", "b"):
        api.put(NODES, to_document(make_node(node)))
    for name, priority, hours in (("old", BATCH, 13), ("young", BATCH, 11), ("prod", PROD, 13)):
        status = {"startTime": format_time(NOW - timedelta(hours=hours))}
        api.put(PODS, to_document(make_pod(name, "a", spec={"priority": priority}, status=status)))
    return api


async def left_by_a_program(api: InMemoryApi, clock: ManualClock) -> set[str]:
    """The pods that are there, and not terminating, after one cycle with the plugin, which allows twelve hours."""
    (profile,) = DOCUMENT["profiles"]
    plugins = {"evict": EVICTOR, "filter": EVICTOR, "deschedule": {"enabled": [{"name": "OldBatchPods"}]}}
    arguments = [{"name": "OldBatchPods", "args": {"maxHours": 12}}]
    document = {**DOCUMENT, "profiles": [{**profile, "plugins": plugins, "pluginConfig": arguments}]}
    client, stop = api.client(), asyncio.Event()
    events = EventBroadcaster(client, program="koord-descheduler", clock=clock, random=Random(1))
    process = Process(clock=clock, random=Random(1), stop=stop)
    made = Descheduler(client, events, resolve(document, "", Catalogue(BUILT_IN)), process)
    async with asyncio.timeout(20), made.informers.started(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(made.deschedule(stop))
        await clock.advance(1)
        stop.set()
        await clock.advance(1)
    return {pod["metadata"]["name"] for pod in api.all(PODS) if "deletionTimestamp" not in pod["metadata"]}


def test_the_plugin_evicts_in_the_running_program() -> None:
    clock = ManualClock(start=NOW)
    assert asyncio.run(left_by_a_program(api_with_pods(clock), clock)) == {"young", "prod"}


def test_the_program_says_where_the_plugin_comes_from() -> None:
    catalogue = Catalogue(BUILT_IN)
    configuration = load_configuration(EXAMPLE / "descheduler.yaml", catalogue)
    assert configuration.profiles[0].points["deschedule"] == ("OldBatchPods",)
    assert catalogue.third_party == {"OldBatchPods": "old-batch-pods 0.1.0"}


def test_its_arguments_are_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "descheduler.yaml"
    path.write_text((EXAMPLE / "descheduler.yaml").read_text().replace("maxHours", "maxDays"))
    with pytest.raises(ConfigurationError, match=r"pluginConfig\[0\]\.args\.maxDays"):
        load_configuration(path, Catalogue(BUILT_IN))
