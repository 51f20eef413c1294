"""Rounds of keeping certificates, files, server and configurations in line: what each does, and when they come."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from koordinator.api.kinds import MUTATING_WEBHOOK_CONFIGURATIONS, SECRETS, VALIDATING_WEBHOOK_CONFIGURATIONS, Kind
from koordinator.api.meta import ObjectReference
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.errors import TransportError
from koordinator.kube.events import EventRecorder
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.environment import WebhookEnvironment
from koordinator.manager.missing import NotInstalledError
from koordinator.manager.webhook.certificate_files import read_files
from koordinator.manager.webhook.certificates import Certificates
from koordinator.manager.webhook.configuration_sync import ConfigurationSync, OvertakenError
from tests.in_memory_api import NO_FAULT, ApiRequest, Document, InMemoryApi
from tests.manager.webhook.installed import MUTATING, VALIDATING, mutating, validating
from tests.manager.webhook.making import NOW, certificates
from tests.waiting import InlineExecutor, wait_for

CONFIGURATIONS: dict[str, Kind[Any]] = {
    MUTATING: MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING: VALIDATING_WEBHOOK_CONFIGURATIONS,
}
SECRET, NAMESPACE = "koordinator-webhook-certs", "koordinator-system"
INSTALL = "koord manifests --only webhook | kubectl apply -f -"


class Writer:
    """Hands out what it holds."""

    def __init__(self) -> None:
        self.held = certificates()

    async def ensure(self) -> Certificates:
        return self.held


class Bench:
    """A sync over an API server in memory."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(NOW)
        self.api = InMemoryApi()
        """With a clock of its own, so that nothing but the sync is asleep on this one."""
        self.writer = Writer()
        self.served: list[Certificates | None] = []
        self.events: list[tuple[str, str, str, str]] = []
        self.install()
        self.start_process(WebhookEnvironment(certificate_folder=folder))

    def start_process(self, environment: WebhookEnvironment) -> None:
        """One that knows nothing of what was before."""
        self.folder = environment.certificate_folder
        self.sync = ConfigurationSync(
            self.api.client(),
            self.writer,
            environment,
            frozenset({"/mutate-pod", "/validate-pod"}),
            self._serve,
            clock=self.clock,
            random=Random(1),
            metrics=Metrics(),
            recorder=cast("EventRecorder", self),
        )

    def event(self, regarding: ObjectReference, type_: str, reason: str, action: str, note: str) -> None:
        """In place of the recorder of events."""
        self.events.append((regarding.name, type_, reason, note))

    def install(self) -> None:
        for document in (mutating(), validating()):
            self.put(document)

    def put(self, configuration: Document) -> None:
        self.api.put(CONFIGURATIONS[configuration["metadata"]["name"]], configuration)

    def stored(self, name: str) -> Document:
        return self.api.document(CONFIGURATIONS[name], name)

    def remove(self, name: str) -> None:
        self.api.remove(CONFIGURATIONS[name], name)

    async def _serve(self) -> None:
        self.served.append(read_files(self.folder))
        assert self.writes() == [] or len(self.served) > 1, "configurations were written before anybody answers"

    def writes(self) -> list[str]:
        return [request.name for request in self.api.requests if request.verb not in ("get", "list", "watch")]

    def trusted(self) -> list[bytes]:
        """The authorities in each entry's bundle."""
        bundles = {
            entry["clientConfig"]["caBundle"] for name in CONFIGURATIONS for entry in self.stored(name)["webhooks"]
        }
        assert len(bundles) == 1
        found = x509.load_pem_x509_certificates(base64.b64decode(bundles.pop()))
        return [certificate.public_bytes(Encoding.PEM) for certificate in found]

    def put_secret(self, note: str) -> None:
        metadata = {"name": SECRET, "namespace": NAMESPACE, "annotations": {"note": note}}
        self.api.put(SECRETS, {"metadata": metadata, "type": "Opaque"})

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[list[Any]]:
        """With everything in line, so that the next rounds write nothing, which would be heard of as well. Yields
        what is heard of the Secret from then on."""
        await self.sync.round()
        informers, heard = InformerSet(self.api.client()), list[Any]()
        self.sync.watch(informers)
        informer = informers.informer(SECRETS, namespace=NAMESPACE, field_selector=f"metadata.name={SECRET}")
        informer.add_handlers(
            name="test",
            on_add=lambda obj, initial: heard.append(obj),
            on_update=lambda old, new: heard.append(new),
        )
        async with informers.started(5):
            heard.clear()
            yield heard

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


def test_what_administrators_may_set_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    asyncio.run(bench.sync.round())
    changed = bench.stored(VALIDATING)
    changed["webhooks"][0] |= {"timeoutSeconds": 3, "namespaceSelector": {"matchLabels": {"a": "b"}}}
    bench.put(changed)
    asyncio.run(bench.sync.round())
    assert bench.stored(VALIDATING)["webhooks"] == changed["webhooks"]
    assert bench.events == []


def test_what_is_changed_back_is_reported_with_what_to_do_instead(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    asyncio.run(bench.sync.round())
    before = bench.stored(MUTATING)["webhooks"]
    changed = bench.stored(MUTATING)
    changed["webhooks"][0]["rules"][0]["operations"] = ["DELETE"]
    bench.put(changed)
    asyncio.run(bench.sync.round())
    assert bench.stored(MUTATING)["webhooks"] == before
    ((name, type_, reason, note),) = bench.events
    assert (name, type_, reason) == (MUTATING, "Warning", "WebhookConfigurationReverted")
    assert "mpod-create.koordinator.sh: rules" in note
    assert "the annotation template" in note


def test_what_others_wrote_survives(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "somebody", "uid": "somebody's"}
    document = bench.stored(MUTATING)
    document["metadata"]["ownerReferences"] = [owner]
    bench.put(document)
    asyncio.run(bench.sync.round())
    metadata = bench.stored(MUTATING)["metadata"]
    assert metadata["labels"] == {"installed-by": "somebody"}
    assert metadata["annotations"]["note"] == "keep me"
    assert metadata["ownerReferences"] == [owner]


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (MUTATING, f"MutatingWebhookConfiguration {MUTATING} does not exist: {INSTALL}"),
        (VALIDATING, f"ValidatingWebhookConfiguration {VALIDATING} does not exist: {INSTALL}"),
    ],
)
def test_both_configurations_have_to_be_there(tmp_path: Path, missing: str, said: str) -> None:
    bench = Bench(tmp_path)
    bench.remove(missing)
    with pytest.raises(NotInstalledError) as raised:
        asyncio.run(bench.sync.round())
    assert str(raised.value) == said
    assert bench.writes() == []


def test_both_are_named_where_both_are_missing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for name in CONFIGURATIONS:
        bench.remove(name)
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
            bench.remove(MUTATING)
            for _ in range(3):
                await bench.sync.attempt()
            bench.put(mutating())
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
        written, reported = bench.writes(), replace(bench.writer.held, authority=b"another")

        async def changed_meanwhile() -> None:
            """The Secret changes, and the other replica tells, while this one is busy with what was before."""
            bench.writer.held = reported
            for name in CONFIGURATIONS:
                configuration = bench.stored(name)
                for entry in configuration["webhooks"]:
                    entry["clientConfig"]["caBundle"] = "told"
                bench.put(configuration)

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
        failures = [TransportError("connection refused")] * 3
        bench.api.fault = lambda request, done: failures.pop() if failures else None
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

        def forestall(request: ApiRequest, done: bool) -> None:
            if request.verb == "patch":
                bench.api.fault = NO_FAULT
                bench.put(bench.stored(MUTATING))

        bench.api.fault = forestall
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
        bench.start_process(WebhookEnvironment(certificate_folder=tmp_path / "restarted"))
        bench.writer.held = certificates()
        await bench.sync.round()
        assert bench.trusted() == [certificates().authority, certificates(which=1).authority]
        assert bench.clock.monotonic() == 0

    run(scenario)


@pytest.mark.parametrize("files_only", [True, False])
def test_only_what_a_round_looks_at_is_watched(tmp_path: Path, files_only: bool) -> None:
    bench = Bench(tmp_path)
    bench.start_process(WebhookEnvironment(host="h" if files_only else "", certificate_folder=tmp_path))
    informers = InformerSet(bench.api.client())
    bench.sync.watch(informers)
    watched = [(each.selection.namespace, each.selection.field_selector) for each in informers]
    secret = [("koordinator-system", "metadata.name=koordinator-webhook-certs")]
    configurations = [("", f"metadata.name={MUTATING}"), ("", f"metadata.name={VALIDATING}")]
    assert watched == ([] if files_only else secret) + configurations


@pytest.mark.parametrize("change", ["add", "update", "delete"])
def test_every_change_starts_a_round(tmp_path: Path, change: str) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        if change != "add":
            bench.put_secret("before")
        async with bench.watching(), bench.running():
            rounds = len(bench.served)
            await bench.clock.advance(1)
            assert len(bench.served) == rounds
            if change == "delete":
                bench.api.remove(SECRETS, SECRET, NAMESPACE)
            else:
                bench.put_secret("after")
            await wait_for(lambda: len(bench.served) == rounds + 1)

    run(scenario)


def test_changes_start_no_more_than_one_round_a_second(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        async with bench.watching() as heard, bench.running():
            rounds = len(bench.served)
            for number in range(5):
                bench.put_secret(str(number))
            await wait_for(lambda: len(heard) == 5)
            await bench.clock.advance(0.9)
            assert len(bench.served) == rounds
            await bench.clock.advance(0.2)
            await wait_for(lambda: len(bench.served) == rounds + 1)
            await bench.clock.advance(30)
            assert len(bench.served) == rounds + 1

    run(scenario)
