"""Connections: whom we trust, how we present ourselves, and what a failure to connect says."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from koordinator.base.clock import ManualClock
from koordinator.kube.connect import user_agent
from koordinator.kube.errors import CredentialError, TransportError
from koordinator.kube.tls import KeyPair, RotatingContext, TLSSettings, build_context
from tests.kube.certificates import Authority
from tests.kube.clients import base64, client_of, client_with, run
from tests.kube.scripted_server import ScriptedServer, response, who


def send(
    tmp_path: Path, server_tls: ssl.SSLContext, cluster: dict[str, Any], user: dict[str, Any] | None = None
) -> str:
    """One request over TLS; the name that the server saw."""

    async def work() -> str:
        async with ScriptedServer(who, tls=server_tls) as server:
            client = await client_with(tmp_path, {"server": server.url, **cluster}, user or {})
            try:
                return (await client.raw("GET", "/whoami")).decode()
            finally:
                await client.close()

    return run(work())


def test_a_client_certificate_signs_in(tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.issue("koord-scheduler")
    user = {"client-certificate-data": base64(certificate), "client-key-data": base64(key)}
    context = authority.server_context(tmp_path, send_to_clients=True)
    assert send(tmp_path, context, {"certificate-authority-data": base64(authority.pem)}, user) == "koord-scheduler"


def test_certificates_may_be_files(tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.issue("from-a-file")
    for name, data in (("ca.crt", authority.pem), ("me.crt", certificate), ("me.key", key)):
        (tmp_path / name).write_bytes(data)
    context = authority.server_context(tmp_path, send_to_clients=True)
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    assert send(tmp_path, context, {"certificate-authority": "ca.crt"}, user) == "from-a-file"


def test_a_server_of_another_authority_is_not_trusted(tmp_path: Path) -> None:
    context = Authority().server_context(tmp_path)
    with pytest.raises(TransportError, match="certificate verify failed") as caught:
        send(tmp_path, context, {"certificate-authority-data": base64(Authority("other").pem)})
    assert not caught.value.maybe_applied


def test_a_server_of_another_name_is_not_trusted(tmp_path: Path) -> None:
    authority = Authority()
    with pytest.raises(TransportError, match="verify failed"):
        send(
            tmp_path,
            authority.server_context(tmp_path, "api.example"),
            {"certificate-authority-data": base64(authority.pem)},
        )


def test_tls_server_name_says_which_name_to_expect(tmp_path: Path) -> None:
    authority = Authority()
    cluster = {"certificate-authority-data": base64(authority.pem), "tls-server-name": "api.example"}
    assert send(tmp_path, authority.server_context(tmp_path, "api.example"), cluster) == "None"


def test_insecure_trusts_anyone(tmp_path: Path) -> None:
    assert send(tmp_path, Authority().server_context(tmp_path), {"insecure-skip-tls-verify": True}) == "None"


def test_tls_before_1_2_is_refused() -> None:
    assert build_context(TLSSettings()).minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (TLSSettings(authority=b"junk"), "certificate-authority-data: not a usable certificate authority"),
        (TLSSettings(authority_file="/absent/ca"), "/absent/ca: not a usable certificate authority: No such file"),
        (TLSSettings(key_pair=KeyPair(certificate=b"a", key=b"s3cret")), "client-certificate-data and client-key-data"),
    ],
)
def test_unusable_certificates_are_named(settings: TLSSettings, message: str) -> None:
    with pytest.raises(CredentialError, match=message) as caught:
        build_context(settings)
    assert "s3cret" not in str(caught.value)


def test_rotated_files_are_noticed_within_a_minute(tmp_path: Path) -> None:
    async def work() -> list[bool]:
        clock, path = ManualClock(), tmp_path / "ca.crt"
        path.write_bytes(Authority().pem)
        rotating = RotatingContext(TLSSettings(authority_file=str(path)), clock)
        replacement = tmp_path / "new"
        replacement.write_bytes(Authority("next").pem)
        replacement.rename(path)
        seen = [rotating.refresh()]
        for _ in range(2):
            await clock.advance(61)
            seen.append(rotating.refresh())
        return seen

    assert run(work()) == [False, True, False]


def test_half_rotated_files_leave_the_old_context(tmp_path: Path) -> None:
    async def work() -> None:
        clock, path = ManualClock(), tmp_path / "ca.crt"
        path.write_bytes(Authority().pem)
        rotating = RotatingContext(TLSSettings(authority_file=str(path)), clock)
        before = rotating.context
        path.write_text("")
        await clock.advance(61)
        with pytest.raises(CredentialError):
            rotating.refresh()
        assert rotating.context is before

    run(work())


def test_a_refused_connection_names_the_request() -> None:
    async def work() -> None:
        async with ScriptedServer() as server:
            url = server.url
        async with client_of(url) as client:
            with pytest.raises(TransportError, match=r"GET /version: .*onnect"):
                await client.raw("GET", "/version")

    run(work())


def test_redirects_are_responses() -> None:
    async def work() -> None:
        elsewhere = response(b"", 307, {"Location": "http://elsewhere.invalid/"})
        async with ScriptedServer(elsewhere) as server, client_of(server.url) as client:
            with pytest.raises(Exception, match="307"):
                await client.raw("GET", "/version")

    run(work())


def test_requests_go_through_the_proxy() -> None:
    async def work() -> str:
        async with ScriptedServer(response(b"from the proxy")) as proxy:
            environment = {"HTTP_PROXY": proxy.url}
            async with client_of("http://api.invalid:8080", environment=environment) as client:
                return (await client.raw("GET", "/version")).decode()

    assert run(work()) == "from the proxy"


def test_the_user_agent_has_the_form_of_go_programs() -> None:
    name, platform, project = user_agent("koord-scheduler").split(" ")
    assert name.startswith("koord-scheduler/")
    assert platform.startswith("(linux/")
    assert project == "koordinator"


def test_closing_leaves_nothing_running() -> None:
    async def work() -> int:
        async with ScriptedServer(response(b"")) as server, client_of(server.url) as client:
            await client.raw("GET", "/version")
        return sum(task.get_name() == "time-limits" for task in asyncio.all_tasks())

    assert run(work()) == 0
