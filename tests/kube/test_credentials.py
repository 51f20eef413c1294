"""Tokens, token files that rotate, and exec plugins with all that can go wrong with them."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from base64 import b64encode
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from koordinator.base.clock import Clock, ManualClock
from koordinator.kube.credentials import TokenFile, fixed_credentials, impersonation_headers
from koordinator.kube.errors import ApiStatusError, CredentialError, KubeconfigError
from koordinator.kube.exec_credentials import ExecCredentials, SharedPlugin, SharedPlugins, check_plugin
from koordinator.kube.kubeconfig import Cluster, ExecPlugin, ExecVariable, NamedExtension, User
from koordinator.kube.tls import KeyPair
from tests.kube.certificates import Authority
from tests.kube.clients import base64, client_with, run
from tests.kube.scripted_server import ScriptedServer, failure, response, who

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"


@pytest.mark.parametrize(
    ("user", "header"),
    [
        (User(), ""),
        (User(token=" abc\n"), "Bearer abc"),
        (User(username="me", password="pw"), "Basic " + b64encode(b"me:pw").decode()),
    ],
)
def test_fixed_credentials(user: User, header: str) -> None:
    assert run(fixed_credentials(user).authorization()) == header


def test_impersonation_is_a_set_of_headers() -> None:
    user = User(
        impersonate="a",
        impersonate_uid="1",
        impersonate_groups=["x", "y"],
        impersonate_extra={"k/z": ["v"]},
    )
    assert impersonation_headers(user) == [
        ("Impersonate-User", "a"),
        ("Impersonate-Uid", "1"),
        ("Impersonate-Group", "x"),
        ("Impersonate-Group", "y"),
        ("Impersonate-Extra-k%2Fz", "v"),
    ]


def test_a_token_file_is_read_again_as_it_rotates(tmp_path: Path) -> None:
    async def work() -> list[str]:
        clock, path = ManualClock(), tmp_path / "token"
        path.write_text("one\n")
        source = TokenFile(path, clock)
        seen = [await source.authorization()]
        path.write_text("two\n")
        seen.append(await source.authorization())
        await clock.advance(50)
        seen.append(await source.authorization())
        return seen

    assert run(work()) == ["Bearer one", "Bearer one", "Bearer two"]


def test_a_token_file_that_vanishes_leaves_the_last_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> str:
        clock, path = ManualClock(), tmp_path / "token"
        path.write_text("s3cret")
        source = TokenFile(path, clock)
        await source.authorization()
        path.unlink()
        await clock.advance(60)
        return await source.authorization()

    with caplog.at_level(logging.WARNING):
        assert run(work()) == "Bearer s3cret"
    assert "No such file" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_a_token_file_without_a_token_is_an_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CredentialError, match=str(path)):
        run(TokenFile(path, ManualClock()).authorization())


def test_a_refused_token_is_read_anew_at_once(tmp_path: Path) -> None:
    async def work() -> list[str]:
        token = tmp_path / "token"
        token.write_text("old")
        context = Authority().server_context(tmp_path)

        async with ScriptedServer(response(b""), failure(401, "Unauthorized"), response(b""), tls=context) as server:
            cluster = {"server": server.url, "insecure-skip-tls-verify": True}
            client = await client_with(tmp_path, cluster, {"tokenFile": "token"})
            try:
                await client.raw("GET", "/a")
                token.write_text("new")
                await client.raw("POST", "/b", b"")
            finally:
                await client.close()
            return [received.headers["Authorization"] for received in server.received]

    assert run(work()) == ["Bearer old", "Bearer old", "Bearer new"]


def test_a_token_that_stays_refused_is_a_response(tmp_path: Path) -> None:
    async def work() -> int:
        context = Authority().server_context(tmp_path)
        async with ScriptedServer(failure(401, "Unauthorized"), tls=context) as server:
            cluster = {"server": server.url, "insecure-skip-tls-verify": True}
            client = await client_with(tmp_path, cluster, {"token": "x"})
            try:
                with pytest.raises(ApiStatusError) as caught:
                    await client.raw("GET", "/a")
            finally:
                await client.close()
            return caught.value.code

    assert run(work()) == 401


class Plugin:
    """A plugin script that counts its runs, keeps its question and prints what it is told to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.command = folder / "plugin"
        self.command.write_text(
            "#!/bin/sh\n"
            f'cd "{folder}"\n'
            "echo run >> runs\n"
            'printf %s "$KUBERNETES_EXEC_INFO" > question\n'
            'printf %s "$REGION" > region\n'
            "cat answer\n"
            'exit "$(cat status 2>/dev/null || echo 0)"\n'
        )
        self.command.chmod(stat.S_IRWXU)

    def responds_with(self, version: str = V1, **status: Any) -> None:
        self.prints(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))

    def prints(self, text: str) -> None:
        (self._folder / "answer").write_text(text)

    def exits(self, status: int) -> None:
        (self._folder / "status").write_text(str(status))

    @property
    def runs(self) -> int:
        return len((self._folder / "runs").read_text().splitlines())

    @property
    def question(self) -> Any:
        return json.loads((self._folder / "question").read_text())

    @property
    def region(self) -> str:
        return (self._folder / "region").read_text()


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    made = Plugin(tmp_path)
    made.responds_with(token="s3cret")
    return made


def source_of(
    plugin: Plugin, clock: Clock, presented: list[KeyPair | None] | None = None, **settings: Any
) -> ExecCredentials:
    cluster = settings.pop("cluster", Cluster(server="https://one"))
    is_terminal = settings.pop("is_terminal", lambda: False)
    described = ExecPlugin(
        command=str(plugin.command), **{"api_version": V1, "interactive_mode": "IfAvailable", **settings}
    )
    environment = {"PATH": "/usr/bin:/bin", "REGION": "outer"}
    shared = SharedPlugin(described, cluster, clock, environment, is_terminal)
    return ExecCredentials(shared, (presented if presented is not None else []).append)


def test_a_plugins_token_is_kept(plugin: Plugin) -> None:
    async def work() -> list[str]:
        source = source_of(plugin, ManualClock())
        return [await source.authorization(), await source.authorization()]

    assert run(work()) == ["Bearer s3cret"] * 2
    assert plugin.runs == 1


def test_clients_with_the_same_options_run_a_plugin_once(plugin: Plugin) -> None:
    described = ExecPlugin(command=str(plugin.command), api_version=V1, interactive_mode="Never")

    async def work() -> list[str]:
        shared, clock, environment = SharedPlugins(), ManualClock(), {"PATH": "/usr/bin:/bin"}
        clusters = [Cluster(server=f"https://{name}") for name in ("one", "one", "other")]
        made = [shared.plugin(described, cluster, clock, environment) for cluster in clusters]
        return [await ExecCredentials(each, lambda _: None).authorization() for each in made]

    assert run(work()) == ["Bearer s3cret"] * 3
    assert plugin.runs == 2


def test_concurrent_requests_run_a_plugin_once(plugin: Plugin) -> None:
    async def work() -> None:
        source = source_of(plugin, ManualClock())
        await asyncio.gather(*(source.authorization() for _ in range(10)))

    run(work())
    assert plugin.runs == 1


def test_a_plugin_runs_again_when_its_token_expires(plugin: Plugin) -> None:
    async def work() -> list[str]:
        clock = ManualClock()
        expiry = (clock.now() + timedelta(minutes=10)).isoformat()
        plugin.responds_with(token="one", expirationTimestamp=expiry)
        source = source_of(plugin, clock)
        seen = [await source.authorization()]
        plugin.responds_with(token="two")
        for _ in range(2):
            await clock.advance(301)
            seen.append(await source.authorization())
        return seen

    assert run(work()) == ["Bearer one", "Bearer one", "Bearer two"]


def test_a_refused_token_runs_the_plugin_again_once_for_all(plugin: Plugin) -> None:
    async def work() -> list[bool]:
        source = source_of(plugin, ManualClock())
        refused = await source.authorization()
        plugin.responds_with(token="two")
        renewed = await asyncio.gather(*(source.renew(refused) for _ in range(5)))
        assert await source.authorization() == "Bearer two"
        return renewed

    assert run(work()) == [True] * 5
    assert plugin.runs == 2


def test_when_a_plugin_has_nothing_new_the_refusal_stands(plugin: Plugin, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> bool:
        source = source_of(plugin, ManualClock())
        refused = await source.authorization()
        plugin.exits(3)
        return await source.renew(refused)

    assert not run(work())
    assert "exit status 3" in caplog.text


def test_the_plugin_is_told_what_it_needs(plugin: Plugin) -> None:
    cluster = Cluster(
        server="https://one",
        certificate_authority_data="Q0E=",
        extensions=[NamedExtension(name=V1.replace("/v1", "/exec"), extension={"audience": "x"})],
    )
    run(
        source_of(
            plugin,
            ManualClock(),
            cluster=cluster,
            provide_cluster_info=True,
            env=[ExecVariable(name="REGION", value="inner")],
        ).authorization()
    )
    assert plugin.question == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://one",
                "certificate-authority-data": "Q0E=",
                "config": {"audience": "x"},
            },
        },
    }
    assert plugin.region == "inner"


@pytest.mark.parametrize(
    ("mode", "terminal", "interactive"),
    [("Never", True, False), ("IfAvailable", True, True), ("IfAvailable", False, False), ("Always", True, True)],
)
def test_interactive_modes(plugin: Plugin, mode: str, terminal: bool, interactive: bool) -> None:
    source = source_of(plugin, ManualClock(), interactive_mode=mode, is_terminal=lambda: terminal)
    run(source.authorization())
    assert plugin.question["spec"]["interactive"] is interactive


def test_a_plugin_that_needs_a_terminal_is_not_run_without(plugin: Plugin) -> None:
    source = source_of(plugin, ManualClock(), interactive_mode="Always")
    with pytest.raises(CredentialError, match="interactiveMode is Always and standard input is not a terminal"):
        run(source.authorization())


def test_v1beta1_needs_no_interactive_mode(plugin: Plugin) -> None:
    plugin.responds_with(V1BETA1, token="s3cret")
    check_plugin(ExecPlugin(command="x", api_version=V1BETA1), "user u")
    source = source_of(plugin, ManualClock(), api_version=V1BETA1, interactive_mode="")
    assert run(source.authorization()) == "Bearer s3cret"


@pytest.mark.parametrize(
    ("response_text", "message"),
    [
        ("s3cret", "not an ExecCredential in JSON"),
        (json.dumps({"apiVersion": V1BETA1, "kind": "ExecCredential"}), "answered with .*v1beta1.*expected .*/v1 "),
        (json.dumps({"apiVersion": V1, "kind": "ExecCredential"}), "neither status.token nor a client certificate"),
        (
            json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"clientKeyData": "s3cret"}}),
            "but not both",
        ),
        (
            json.dumps(
                {
                    "apiVersion": V1,
                    "kind": "ExecCredential",
                    "status": {"token": "s3cret", "expirationTimestamp": "2026-01-01T00:00:00"},
                }
            ),
            "not an ExecCredential",
        ),
    ],
)
def test_what_a_plugin_prints_wrongly_is_named(plugin: Plugin, response_text: str, message: str) -> None:
    plugin.prints(response_text)
    with pytest.raises(CredentialError, match=message) as caught:
        run(source_of(plugin, ManualClock()).authorization())
    assert "s3cret" not in str(caught.value)


def test_an_absent_plugin_is_named_with_its_hint(plugin: Plugin) -> None:
    plugin.command.unlink()
    with pytest.raises(CredentialError, match="plugin: No such file or directory; install it"):
        run(source_of(plugin, ManualClock(), install_hint="install it").authorization())


def test_a_plugin_that_hangs_is_ended(plugin: Plugin, tmp_path: Path) -> None:
    plugin.command.write_text("#!/bin/sh\nexec tail -f /dev/null\n")

    async def work() -> None:
        clock = ManualClock()
        source = source_of(plugin, clock)
        async with asyncio.TaskGroup() as group:
            requested = group.create_task(outcome(source))
            while not clock.sleepers:
                await asyncio.sleep(0)
            await clock.advance(301)
        assert "no end after 300 s" in requested.result()

    run(work())


async def outcome(source: ExecCredentials) -> str:
    with pytest.raises(CredentialError) as caught:
        await source.authorization()
    return str(caught.value)


@pytest.mark.parametrize(
    ("plugin_settings", "message"),
    [
        ({"api_version": V1, "interactive_mode": "Never"}, "exec.command is not set"),
        ({"command": "x", "api_version": "client.authentication.k8s.io/v1alpha1"}, "exec.apiVersion"),
        ({"command": "x", "api_version": V1}, "exec.interactiveMode ''"),
        ({"command": "x", "api_version": V1, "interactive_mode": "Maybe"}, "exec.interactiveMode 'Maybe'"),
    ],
)
def test_plugins_that_cannot_work_are_refused(plugin_settings: dict[str, str], message: str) -> None:
    with pytest.raises(KubeconfigError, match=message):
        check_plugin(ExecPlugin(**plugin_settings), "user u")  # type: ignore[arg-type]


def test_a_plugins_certificate_is_presented(plugin: Plugin, tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.issue("from-plugin")
    plugin.responds_with(clientCertificateData=certificate.decode(), clientKeyData=key.decode())
    context = authority.server_context(tmp_path, send_to_clients=True)

    async def work() -> str:
        async with ScriptedServer(who, tls=context) as server:
            cluster = {"server": server.url, "certificate-authority-data": base64(authority.pem)}
            described = {"command": "./plugin", "apiVersion": V1, "interactiveMode": "Never"}
            client = await client_with(tmp_path, cluster, {"exec": described}, environment={"PATH": "/usr/bin:/bin"})
            try:
                return (await client.raw("GET", "/whoami")).decode()
            finally:
                await client.close()

    assert run(work()) == "from-plugin"


def test_a_plugin_that_turns_to_tokens_takes_its_certificate_back(plugin: Plugin) -> None:
    presented: list[KeyPair | None] = []

    async def work() -> None:
        source = source_of(plugin, ManualClock(), presented)
        plugin.responds_with(clientCertificateData="c", clientKeyData="k")
        refused = await source.authorization()
        plugin.responds_with(token="t")
        await source.renew(refused)

    run(work())
    assert presented == [KeyPair(certificate=b"c", key=b"k"), None]
