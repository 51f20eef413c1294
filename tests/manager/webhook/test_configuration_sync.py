"""Rounds of keeping certificates, files, server and configurations in line: what each does, and when they come."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from koordinator.api.kinds import MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.errors import TransportError
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.environment import WebhookEnvironment
from koordinator.manager.missing import NotInstalledError
from koordinator.manager.webhook.certificate_files import read_files
from koordinator.manager.webhook.certificates import Certificates
from koordinator.manager.webhook.configuration_sync import ConfigurationSync, OvertakenError
from tests.kube.fake_client import MemoryClient, ScriptedClient, as_client
from tests.manager.webhook.installed import MUTATING, VALIDATING, mutating, validating
from tests.manager.webhook.making import NOW, certificates
from tests.waiting import InlineExecutor, wait_for

MUTATING_KEY = (MUTATING_WEBHOOK_CONFIGURATIONS.qualified, "", MUTATING)
VALIDATING_KEY = (VALIDATING_WEBHOOK_CONFIGURATIONS.qualified, "", VALIDATING)


INSTALL = "koord manifests --only webhook | kubectl apply -f -"


class Writer:
    """Hands out what it holds."""

    def __init__(self) -> None:
        self.held = certificates()

    async def ensure(self) -> Certificates:
        return self.held


class Bench:
    """A sync over memory."""

    def __init__(self, folder: Path, paths: frozenset[str] = frozenset({"/mutate-pod", "/validate-pod"})) -> None:
        self.client = MemoryClient()
        self.clock = ManualClock(NOW)
        self.writer = Writer()
        self.folder = folder
        self.served: list[Certificates | None] = []
        self.install()
        self.sync = ConfigurationSync(
            as_client(self.client),
            self.writer,
            WebhookEnvironment(certificate_folder=folder),
            paths,
            self._serve,
            clock=self.clock,
            random=Random(1),
            metrics=Metrics(),
        )

    def install(self) -> None:
        for key, document in ((MUTATING_KEY, mutating()), (VALIDATING_KEY, validating())):
            document["metadata"]["resourceVersion"] = "0"
            self.client.objects[key] = document

    async def _serve(self) -> None:
        self.served.append(read_files(self.folder))
        assert self.writes() == [] or len(self.served) > 1, "configurations were written before anybody answers"

    def writes(self) -> list[str]:
        return [name for verb, name, _ in self.client.calls if verb != "get"]

    def trusted(self) -> list[bytes]:
        """The authorities in each entry's bundle."""
        bundles = {
            entry["clientConfig"]["caBundle"]
            for key in (MUTATING_KEY, VALIDATING_KEY)
            for entry in self.client.objects[key]["webhooks"]
        }
        assert len(bundles) == 1
        found = x509.load_pem_x509_certificates(base64.b64decode(bundles.pop()))
        return [certificate.public_bytes(Encoding.PEM) for certificate in found]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self.sync.run())
        try:
            await asyncio.wait_for(self.sync.succeeded.wait(), 10)
            await wait_for(lambda: self.clock.sleepers == 1)
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(timed())


def test_a_round_projects_serves_and_then_configures(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "certificates")
    asyncio.run(bench.sync.round())
    assert bench.served == [certificates()]
    assert bench.writes() == [MUTATING, VALIDATING]
    assert bench.trusted() == [certificates().authority]


def test_a_second_round_writes_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    asyncio.run(bench.sync.round())
    asyncio.run(bench.sync.round())
    assert bench.writes() == [MUTATING, VALIDATING]


def test_what_others_wrote_survives(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.client.objects[MUTATING_KEY]["metadata"]["ownerReferences"] = [{"uid": "somebody's"}]
    asyncio.run(bench.sync.round())
    metadata = bench.client.objects[MUTATING_KEY]["metadata"]
    assert metadata["labels"] == {"installed-by": "somebody"}
    assert metadata["annotations"]["note"] == "keep me"
    assert metadata["ownerReferences"] == [{"uid": "somebody's"}]


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (MUTATING_KEY, f"MutatingWebhookConfiguration {MUTATING} does not exist: {INSTALL}"),
        (VALIDATING_KEY, f"ValidatingWebhookConfiguration {VALIDATING} does not exist: {INSTALL}"),
    ],
)
def test_both_configurations_have_to_be_there(tmp_path: Path, missing: Any, said: str) -> None:
    bench = Bench(tmp_path)
    del bench.client.objects[missing]
    with pytest.raises(NotInstalledError) as raised:
        asyncio.run(bench.sync.round())
    assert str(raised.value) == said
    assert bench.writes() == []


def test_both_are_named_where_both_are_missing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.client.objects.clear()
    with pytest.raises(NotInstalledError) as raised:
        asyncio.run(bench.sync.round())
    assert str(raised.value) == (
        f"MutatingWebhookConfiguration {MUTATING} and ValidatingWebhookConfiguration {VALIDATING} do not exist: "
        f"{INSTALL}"
    )


def test_what_is_missing_is_said_once_and_again_when_it_is_missing_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        for _ in range(2):
            kept = bench.client.objects.pop(MUTATING_KEY)
            for _ in range(3):
                await bench.sync.attempt()
            bench.client.objects[MUTATING_KEY] = kept
            await bench.sync.attempt()
            assert bench.sync.last_error == ""

    run(scenario)
    said = [
        record for record in caplog.records if "does not exist" in record.getMessage() and record.levelname == "WARNING"
    ]
    assert len(said) == 2


def test_another_authority_is_trusted_before_it_is_served_under_and_the_old_one_for_three_minutes_more(
    tmp_path: Path,
) -> None:
    old, new = certificates(), certificates(which=1)

    async def scenario() -> None:
        bench = Bench(tmp_path)
        async with bench.running():
            bench.writer.held = new
            await bench.clock.advance(59)
            assert bench.trusted() == [old.authority]
            await bench.clock.advance(2)
            await wait_for(lambda: len(bench.writes()) == 4)
            assert bench.trusted() == [new.authority, old.authority]
            assert read_files(bench.folder) == old
            await wait_for(lambda: bench.clock.sleepers == 2)
            await bench.clock.advance(1)
            await wait_for(lambda: bench.served[-1] == new)
            while len(bench.trusted()) == 2:
                await bench.clock.advance(1)
            assert bench.trusted() == [new.authority]
            assert bench.clock.monotonic() >= 61 + 180

    run(scenario)


def test_what_another_replica_announced_during_a_round_is_not_taken_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        await bench.sync.round()
        await bench.clock.advance(300)
        await bench.sync.round()
        written, told = bench.writes(), replace(bench.writer.held, authority=b"another")

        async def changed_meanwhile() -> None:
            """The Secret changes, and the other replica tells, while this one is busy with what was before."""
            bench.writer.held = told
            for key in (MUTATING_KEY, VALIDATING_KEY):
                for entry in bench.client.objects[key]["webhooks"]:
                    entry["clientConfig"]["caBundle"] = "told"

        bench.sync._serve = changed_meanwhile
        with pytest.raises(OvertakenError):
            await bench.sync.round()
        assert bench.writes() == written

    run(scenario)


def test_a_new_certificate_of_the_same_authority_is_served_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        await bench.sync.round()
        bench.writer.held = renewed = replace(certificates(), certificate=certificates(which=1).certificate)
        await bench.sync.round()
        assert bench.served[-1] == renewed
        assert bench.trusted() == [certificates().authority]

    run(scenario)


def test_a_failed_round_is_tried_again_and_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        away = 3

        async def fail(verb: str, name: str) -> None:
            nonlocal away
            if away:
                away -= 1
                raise TransportError("connection refused")

        bench.client.before = fail
        running = asyncio.create_task(bench.sync.run())
        errors = set()
        while not bench.sync.succeeded.is_set():
            errors.add(bench.sync.last_error)
            await bench.clock.advance(1)
        assert "connection refused" in errors
        assert bench.sync.last_error == ""
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(scenario)


def test_a_round_that_fails_in_a_way_that_nobody_foresaw_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Webhooks go on with the certificates that they have."""

    async def scenario() -> None:
        bench = Bench(tmp_path)
        held, bench.writer.held = bench.writer.held, None  # type: ignore[assignment]
        running = asyncio.create_task(bench.sync.run())
        await wait_for(lambda: bench.sync.last_error != "not tried yet")
        assert "AttributeError" in bench.sync.last_error
        bench.writer.held = held
        while not bench.sync.succeeded.is_set():
            await bench.clock.advance(1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(scenario)
    assert any(record.exc_info for record in caplog.records), "its stack trace is told"


def test_what_another_replica_wrote_at_the_same_time_is_looked_at_a_second_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """That replicas meet is no failure, and no reason to wait for longer."""

    async def scenario() -> None:
        bench = Bench(tmp_path)

        async def forestall(verb: str, name: str) -> None:
            if verb == "patch":
                bench.client.before = None
                bench.client._write(MUTATING_KEY, bench.client.objects[MUTATING_KEY])

        bench.client.before = forestall
        running = asyncio.create_task(bench.sync.run())
        await wait_for(lambda: "modified" in bench.sync.last_error)
        await wait_for(lambda: bench.clock.sleepers == 1)
        await bench.clock.advance(1)
        await wait_for(bench.sync.succeeded.is_set)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(scenario)
    assert "not in line" not in caplog.text


def test_the_first_round_of_a_process_trusts_what_others_may_serve_under_and_waits_for_nobody(tmp_path: Path) -> None:
    """Also one that was off until its certificates had expired."""

    async def scenario() -> None:
        bench = Bench(tmp_path)
        bench.writer.held = certificates(which=1)
        await bench.sync.round()
        bench.sync, before = Bench(tmp_path / "restarted").sync, bench
        bench.sync._client = as_client(before.client)
        await bench.sync.round()
        assert bench.trusted() == [certificates().authority, certificates(which=1).authority]
        assert bench.clock.monotonic() == 0

    run(scenario)


@pytest.mark.parametrize("files_only", [True, False])
def test_only_what_a_round_looks_at_is_watched(tmp_path: Path, files_only: bool) -> None:
    bench = Bench(tmp_path)
    bench.sync._environment = WebhookEnvironment(host="h" if files_only else "")
    informers = InformerSet(as_client(ScriptedClient()))
    bench.sync.watch(informers)
    watched = [(each.selection.namespace, each.selection.field_selector) for each in informers]
    secret = [("koordinator-system", "metadata.name=koordinator-webhook-certs")]
    configurations = [("", f"metadata.name={MUTATING}"), ("", f"metadata.name={VALIDATING}")]
    assert watched == ([] if files_only else secret) + configurations


@pytest.mark.parametrize("event", ["on_add", "on_update", "on_delete"])
def test_every_change_starts_a_round_but_no_more_than_one_a_second(tmp_path: Path, event: str) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        informers = InformerSet(as_client(ScriptedClient()))
        bench.sync.watch(informers)
        handlers = next(iter(informers)).cache.handlers
        async with bench.running():
            bench.install()
            for _ in range(5):
                _fire(handlers, event)
            assert len(bench.served) == 1
            await bench.clock.advance(1)
            await wait_for(lambda: len(bench.writes()) == 4)
            assert len(bench.served) == 2

    run(scenario)


def _fire(handlers: Any, event: str) -> None:
    obj = object()
    if event == "on_add":
        handlers.added("key", obj, False)
    elif event == "on_update":
        handlers.updated("key", obj, obj)
    else:
        handlers.deleted("key", obj)
