"""What a cluster lacks is said once, with the remedy, and once more when it is there."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from random import Random

import pytest

from koordinator.api.kinds import NAMESPACES, NODE_METRICS, PODS, STORAGE_CLASSES
from koordinator.api.meta import StatusDetails
from koordinator.api.nodemetric import NodeMetric
from koordinator.base.clock import ManualClock
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.informer import Informer
from koordinator.kube.lacks import lack_for_kind, lack_for_lease, lack_for_write
from koordinator.kube.leader_election import LeaderElectionConfig, LeaderElector
from tests.in_memory_api import InMemoryApi
from tests.kube.fake_client import HANG, ScriptedClient, as_client, bookmark, page

NO_KIND = ApiStatusError(404, "NotFound", "the server could not find the requested resource")
FORBIDDEN = ApiStatusError(
    403, "Forbidden", 'nodemetrics.slo.koordinator.sh is forbidden: User "eve" cannot list resource "nodemetrics"'
)
NO_WATCH = ApiStatusError(403, "Forbidden", 'User "eve" cannot watch resource "nodemetrics"')
NO_NAMESPACE = ApiStatusError(
    404,
    "NotFound",
    'namespaces "koordinator-system" not found',
    StatusDetails(name="koordinator-system", kind="namespaces"),
)
INSTALL = "koord manifests | kubectl apply -f -"


def test_the_sentences() -> None:
    assert lack_for_kind(NO_KIND, NODE_METRICS, "list") == (
        f"the cluster has no CustomResourceDefinition nodemetrics.slo.koordinator.sh: install it with: {INSTALL}"
    )
    assert lack_for_kind(NO_KIND, STORAGE_CLASSES, "list") == (
        "the cluster does not serve storageclasses.storage.k8s.io (storage.k8s.io/v1)"
    )
    assert lack_for_kind(FORBIDDEN, NODE_METRICS, "list") == (
        'nodemetrics.slo.koordinator.sh is forbidden: User "eve" cannot list resource "nodemetrics": '
        f"grant it with: {INSTALL}"
    )
    assert lack_for_lease(NO_NAMESPACE, "koordinator-system", "koord-scheduler") == (
        "namespace koordinator-system, in which lease koord-scheduler is to be kept, does not exist: "
        f"create it with: {INSTALL}"
    )
    assert lack_for_lease(NO_NAMESPACE, "mine", "koord-scheduler").endswith("kubectl create namespace mine")
    assert lack_for_lease(ApiStatusError(403, "Forbidden", ""), "a", "b") == (
        f"this program is not allowed to use lease a/b: grant it with: {INSTALL}"
    )


@pytest.mark.parametrize("error", [ApiStatusError(500, "InternalError", "no"), ApiStatusError(410, "Expired", "old")])
def test_other_failures_are_no_lacks(error: ApiStatusError) -> None:
    assert lack_for_kind(error, PODS, "list") == lack_for_lease(error, "a", "b") == ""


def test_admission_that_says_no_is_no_lack() -> None:
    denied = ApiStatusError(403, "Forbidden", 'pods "p" is forbidden: exceeded quota')
    assert lack_for_write(denied, "bind pods") == ""
    assert lack_for_write(FORBIDDEN, "bind pods") == lack_for_kind(FORBIDDEN, PODS, "list")


def test_every_kind_that_the_manifests_install_is_known_to_be_installed_by_them() -> None:
    folder = Path(__file__).parents[2] / "config/crd"
    groups = {re.findall(r"^  group: (.+)$", path.read_text(), re.MULTILINE)[0] for path in folder.glob("*.yaml")}
    kinds = [type(NODE_METRICS)(group, "v1", "things", "Thing", NODE_METRICS.type) for group in groups]
    assert len(groups) > 5
    assert all(INSTALL in lack_for_kind(NO_KIND, kind, "list") for kind in kinds)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]


async def follow(client: ScriptedClient, seconds: float, *, absent_is_empty: bool = False) -> Informer[NodeMetric]:
    clock = ManualClock()
    informer = Informer(as_client(client), NODE_METRICS, clock=clock, random=Random(1), absent_is_empty=absent_is_empty)
    running = asyncio.create_task(informer.run())
    await clock.advance(seconds)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return informer


MISSING = f"the cluster has no CustomResourceDefinition nodemetrics.slo.koordinator.sh: install it with: {INSTALL}"
OVER = "INFO nodemetrics.v1alpha1.slo.koordinator.sh: nothing is lacking any more"


@pytest.mark.parametrize("absent_is_empty", [True, False])
def test_a_kind_that_is_missing_is_reported_once_and_when_it_appears(
    absent_is_empty: bool, caplog: pytest.LogCaptureFixture
) -> None:
    client = ScriptedClient()
    client.lists.extend([*[NO_KIND] * 5, page(version=7)])
    with caplog.at_level(logging.INFO):
        informer = asyncio.run(follow(client, 280, absent_is_empty=absent_is_empty))
    assert said(caplog) == [f"WARNING {MISSING}", OVER]
    assert informer.has_synced
    assert len([verb for verb, _ in client.calls if verb == "list"]) == 6


def test_what_is_missing_is_the_state_that_is_reported_meanwhile() -> None:
    client = ScriptedClient()
    client.lists.extend([NO_KIND] * 50)
    informer = asyncio.run(follow(client, 60))
    assert informer.reflector_statistics.last_error == MISSING


def test_an_outage_between_does_not_repeat_it(caplog: pytest.LogCaptureFixture) -> None:
    client = ScriptedClient()
    client.lists.extend([FORBIDDEN, TransportError("connection refused"), FORBIDDEN, NO_KIND, page(version=7)])
    with caplog.at_level(logging.INFO):
        asyncio.run(follow(client, 280))
    texts = said(caplog)
    assert len([text for text in texts if "cannot list" in text]) == 1
    assert len([text for text in texts if text == f"WARNING {MISSING}"]) == 1
    assert texts[-1] == OVER


def test_a_list_that_is_allowed_does_not_make_up_for_a_watch_that_is_not(caplog: pytest.LogCaptureFixture) -> None:
    client = ScriptedClient()
    client.lists.extend([page(version=5), page(version=6), page(version=7)])
    client.watches.extend([[NO_WATCH], [NO_WATCH], [bookmark(8), HANG]])
    with caplog.at_level(logging.INFO):
        asyncio.run(follow(client, 120))
    texts = said(caplog)
    assert len([text for text in texts if "cannot watch" in text]) == 1
    assert OVER in texts


def test_a_namespace_that_is_missing_for_the_lease_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    api = InMemoryApi(clock)
    api.remove(NAMESPACES, "koordinator-system")

    async def run() -> None:
        config = LeaderElectionConfig("koord-scheduler", "koordinator-system", "me")
        elector = LeaderElector(api.client(), config, clock=clock, random=Random(1))
        running = asyncio.create_task(elector.run(asyncio.Event().wait))  # type: ignore[arg-type]
        await clock.advance(60)
        api.put(NAMESPACES, {"metadata": {"name": "koordinator-system"}})
        await clock.advance(10)
        assert elector.is_leading
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    lacks = [text for text in said(caplog) if "namespace koordinator-system" in text]
    assert lacks == [f"WARNING {lack_for_lease(NO_NAMESPACE, 'koordinator-system', 'koord-scheduler')}"]
    assert "INFO lease koordinator-system/koord-scheduler: nothing is lacking any more" in said(caplog)
