"""Which scheduler ``koord explain`` queries, for what, and what it says when there is no response."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import LEASES, SERVICE_ACCOUNTS
from koordinator.base.errors import ConfigurationError
from koordinator.base.metrics import Metrics
from koordinator.cli import explain_source
from koordinator.cli.explain_failure import UNUSABLE, ExplainError
from koordinator.cli.explain_source import ProgramEndpoint
from koordinator.cli.main import main
from koordinator.cli.session import Session, open_session
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.connect import ClientOptions, connected
from koordinator.kube.pages import Request, Response, json_response
from koordinator.kube.services import Services
from koordinator.kube.serving import HealthServer
from tests.cli.explained_cluster import secure_server

LEASE = ("koordinator-system", "koord-scheduler")


async def fetch(endpoint: ProgramEndpoint, path: str) -> Any:
    async with open_session() as session:
        return await explain_source.fetch(session, endpoint, path)


def echo(parameters: Mapping[str, str]) -> Any:
    return dict(parameters)


def answered(question: Callable[[int], Awaitable[Any]], *, leading: bool = True) -> Any:
    """What ``question`` gets, given the port of a scheduler."""

    async def run() -> Any:
        server = HealthServer(Metrics())
        services = Services(lambda: leading)
        services.add("/debug/explain/:namespace/:name", echo)
        services.mount(server)
        server.add_route("/text", _text)
        await server.start()
        try:
            return await question(server.bound_port)
        finally:
            await server.stop()

    return asyncio.run(run())


async def _text(request: Request) -> Response:
    return Response(text="hello", status=404)


def at(port: int, prefix: str = "http://") -> ProgramEndpoint:
    return ProgramEndpoint(f"{prefix}127.0.0.1:{port}", None, LEASE, 0, Path())


def refusal(question: Callable[[int], Awaitable[Any]], *, leading: bool = True) -> str:
    with pytest.raises(ExplainError) as caught:
        answered(question, leading=leading)
    return str(caught.value)


@pytest.mark.parametrize("prefix", ["http://", ""])
def test_a_scheduler_is_queried_at_its_address(prefix: str) -> None:
    found = answered(lambda port: fetch(at(port, prefix), "/debug/explain/default/web"))
    assert found == {"namespace": "default", "name": "web"}


def test_names_are_quoted() -> None:
    assert answered(lambda port: fetch(at(port), "/debug/explain/default/a b"))["name"] == "a b"


def test_one_that_does_not_lead_says_so() -> None:
    said = refusal(lambda port: fetch(at(port), "/debug/explain/default/web"), leading=False)
    assert said == "the instance is not leader"


def test_a_server_that_is_no_scheduler_is_recognised() -> None:
    assert refusal(lambda port: fetch(at(port), "/text")).endswith("status 404; is that a koord-scheduler?")


@pytest.mark.parametrize("url", ["ftp://x", "http://"])
def test_a_bad_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="--scheduler"):
        asyncio.run(fetch(ProgramEndpoint(url, None, LEASE, 0, Path()), "/"))


def queried_by_lease(folder: Path, holder: str | None) -> Any:
    """What is answered when the Lease of an embedded cluster names ``holder``."""

    async def question() -> Any:
        async with EmbeddedApi(ServerOptions()) as api, AsyncExitStack() as stack:
            api.write_kubeconfig(folder / "kubeconfig")
            options = ClientOptions(kubeconfig=str(folder / "kubeconfig"))
            client = await stack.enter_async_context(connected(options))
            await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "koord-explain"}}, "default")
            if holder is not None:
                lease = {"metadata": {"name": "mine"}, "spec": {"holderIdentity": holder}}
                await client.create(LEASES, lease, "default")
            server = secure_server(client)
            server.add_route("/debug/explain/{namespace}/{name}", _echo)
            await server.start()
            stack.push_async_callback(server.stop)
            endpoint = ProgramEndpoint(None, options, ("default", "mine"), server.bound_port, Path())
            return await fetch(endpoint, "/debug/explain/default/web")

    return asyncio.run(question())


async def _echo(request: Request) -> Response:
    return json_response(dict(request.parameters))


def test_the_leader_on_this_machine_is_found_by_its_lease(tmp_path: Path) -> None:
    assert queried_by_lease(tmp_path, f"{socket.gethostname()}_1234")["name"] == "web"


def test_a_leader_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExplainError, match=r"^elsewhere leads, but could not be queried"):
        queried_by_lease(tmp_path, "elsewhere_1234")


def test_a_lease_that_nobody_holds_means_that_no_scheduler_runs(tmp_path: Path) -> None:
    with pytest.raises(ExplainError, match="no replica holds the Lease default/mine"):
        queried_by_lease(tmp_path, "")


def test_a_lease_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExplainError, match="there is no Lease default/mine"):
        queried_by_lease(tmp_path, None)


def requested_for(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[ProgramEndpoint, str]:
    """Where and for what the command asks."""
    seen: list[tuple[ProgramEndpoint, str]] = []

    async def note(session: Session, endpoint: ProgramEndpoint, path: str) -> Any:
        seen.append((endpoint, path))
        return {"pod": "web", "node": "a"}

    monkeypatch.setattr("koordinator.cli.explanation.fetch", note)
    assert main(["explain", *arguments, "-o=json", "--scheduler=http://127.0.0.1:1"]) == 0
    return seen[0]


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["pod", "web"], "/debug/explain/default/web"),
        (["pod", "team/web"], "/debug/explain/team/web"),
        (["pod", "web", "-n", "team"], "/debug/explain/team/web"),
        (["pod", "team/web", "-n", "team"], "/debug/explain/team/web"),
        (["node", "a"], "/debug/explain-node/a"),
        (["node", "node/a"], "/debug/explain-node/a"),
        (["pod/web"], "/debug/explain/default/web"),
        (["po/web", "-n", "team"], "/debug/explain/team/web"),
        (["po", "web"], "/debug/explain/default/web"),
        (["pods", "web"], "/debug/explain/default/web"),
        (["Pods/web"], "/debug/explain/default/web"),
        (["pod", "pod/web"], "/debug/explain/default/web"),
        (["node/a"], "/debug/explain-node/a"),
        (["no", "a"], "/debug/explain-node/a"),
        (["nodes", "a"], "/debug/explain-node/a"),
        (["no/a", "-n", "team"], "/debug/explain-node/a"),
        (["web"], "/debug/explain/default/web"),
        (["team/web"], "/debug/explain/team/web"),
    ],
)
def test_names_are_read_as_kubectl_has_them(monkeypatch: pytest.MonkeyPatch, arguments: list[str], path: str) -> None:
    assert requested_for(monkeypatch, *arguments)[1] == path


def test_the_lease_is_a_namespace_and_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, _ = requested_for(monkeypatch, "pod", "web", "--lease=one/two", "--port=7")
    assert (endpoint.lease, endpoint.port) == (("one", "two"), 7)


@pytest.mark.parametrize(
    "arguments", [["pod", "team/web", "-n", "other"], ["pod", "web", "--lease=x"], ["pod", "web", "--lease=/x"]]
)
def test_contradictions_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *arguments]) == UNUSABLE
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_json_is_all_that_is_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def respond(session: Session, endpoint: ProgramEndpoint, path: str) -> Any:
        return {"pod": "default/web", "message": "ä"}

    monkeypatch.setattr("koordinator.cli.explanation.fetch", respond)
    main(["explain", "pod", "web", "-o=json", "--scheduler=http://127.0.0.1:1"])
    assert json.loads(capsys.readouterr().out) == {"version": 1, "pod": "default/web", "message": "ä"}


@pytest.mark.parametrize(
    ("words", "taught"),
    [
        ([], "what is to be explained? koord explain pod NAME"),
        (["pod"], "which pod? koord explain pod NAME"),
        (["no"], "which no? koord explain no NAME"),
        (["svc/web"], "svc web is not scheduled itself, its pods are: find one with kubectl get pods"),
        (["cronjob", "web"], "cronjob web is not scheduled itself"),
        (
            ["secret", "web"],
            "'secret' cannot be explained, pods, nodes, quotas, gangs, reservations, migrations and interference can",
        ),
        (["pod", "a", "b"], "one object at a time, not 'pod a b'"),
        (["pod", "Web"], "'Web' is not the name of a pod: lower-case letters"),
        (["pod", "web", "-n", "A_b"], "'A_b' is not the name of a namespace"),
        (["node", "a/b"], "'a/b' is not the name of a node"),
        (["pod", "w\udcff"], "is not the name of a pod"),
    ],
)
def test_what_cannot_be_explained_is_answered_with_what_can(
    words: list[str], taught: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words]) == UNUSABLE
    printed = capsys.readouterr()
    assert (printed.out, taught in printed.err) == ("", True), printed.err


def test_a_pod_that_was_guessed_is_called_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def respond(session: Session, endpoint: ProgramEndpoint, path: str) -> Any:
        return {"pod": "default/web", "attempts": [], "node": "a"}

    monkeypatch.setattr("koordinator.cli.explanation.fetch", respond)
    assert main(["explain", "web", "--scheduler=http://127.0.0.1:1"]) == 0
    assert "web was taken for a pod; if it is a node: koord explain node web" in capsys.readouterr().out
