"""Whether webhooks are ready, found out as API servers would."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from koordinator.manager.webhook.certificate_files import write_files
from koordinator.manager.webhook.configuration_sync import ConfigurationSync
from koordinator.manager.webhook.program import Readiness
from tests.manager.webhook.making import NAME, NOW, certificates
from tests.manager.webhook.serving import HOST, serving


class Sync:
    """How far the configurations are."""

    def __init__(self, last_error: str) -> None:
        self.succeeded = asyncio.Event()
        self.last_error = last_error
        if not last_error:
            self.succeeded.set()


def check(
    folder: Path, *, last_error: str = "", name: str = NAME, stopped: bool = False, withdrawn: bool = False
) -> str:
    async def scenario() -> str:
        async with serving(folder) as server:
            sync = cast("ConfigurationSync", Sync(last_error))
            readiness = Readiness(sync, folder, name, HOST, server.bound_port)
            if withdrawn:
                readiness.withdraw()
            if stopped:
                await server.stop()
            return await readiness.check()

    return asyncio.run(scenario())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path, certificates(), NOW)
    return tmp_path


def test_a_server_that_responds_as_it_should_is_ready(folder: Path) -> None:
    assert check(folder) == ""


def test_before_the_first_round_it_is_not(folder: Path) -> None:
    assert "not found MutatingWebhookConfiguration x" in check(
        folder, last_error="not found MutatingWebhookConfiguration x"
    )


def test_a_server_that_is_gone_is_not(folder: Path) -> None:
    assert "/healthz" in check(folder, stopped=True)


def test_a_certificate_for_another_name_is_not(folder: Path) -> None:
    assert "certificate" in check(folder, name="hooks.example")


def test_an_authority_that_cannot_be_read_is_not(folder: Path) -> None:
    (folder / "ca-cert.pem").unlink()
    assert "ca-cert.pem" in check(folder)


def test_one_that_still_responds_but_is_about_to_stop_is_not(folder: Path) -> None:
    assert check(folder, withdrawn=True) == "webhooks are about to stop"


def test_those_who_ask_at_once_share_one_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    async def call(self: Readiness) -> str:
        calls.append("call")
        await asyncio.sleep(0)
        return ""

    async def scenario() -> list[str]:
        readiness = Readiness(cast("ConfigurationSync", Sync("")), folder, NAME, HOST, 1)
        return await asyncio.gather(*[readiness.check() for _ in range(100)])

    monkeypatch.setattr(Readiness, "_call", call)
    assert asyncio.run(scenario()) == [""] * 100
    assert calls == ["call"]
