"""Whatever goes wrong, ``koord explain`` says it in one sentence on standard error and ends with the status that the
help names; a traceback never."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from koordinator.api.kinds import PODS
from koordinator.cli.explain_failure import (
    API_ALONE,
    DEFECT,
    INTERRUPTED,
    NOT_ALLOWED,
    NOT_REACHED,
    PIPE_CLOSED,
    UNUSABLE,
)
from koordinator.cli.main import main
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster

Change = Callable[[dict[str, Any], Path], None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedCluster]:
    with explained_cluster(tmp_path_factory.mktemp("explained")) as found:
        spec = {"containers": [{"name": "main", "image": "example"}], "schedulerName": "other"}
        found.create(PODS, {"metadata": {"name": "web"}, "spec": spec}, "default")
        yield found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    response: tuple[int, bytes] | None = None
    requested = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.requested.set()
        if self.server.response is None:
            threading.Event().wait(60)
            return
        status, body = self.server.response
        if not status:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Not on the output of tests."""


@contextmanager
def serving(response: tuple[int, bytes] | None) -> Iterator[_Server]:
    """Plain HTTP that gives every request the same response: a status and a body, status 0 to hang up, None to say
    nothing."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.response, server.requested = response, threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def kubeconfig_of(folder: Path, server: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "a",
                "clusters": [{"name": "a", "cluster": {"server": server}}],
                "contexts": [{"name": "a", "context": {"cluster": "a"}}],
            }
        )
    )
    return path


def refused(capsys: pytest.CaptureFixture[str], status: int, *arguments: str) -> str:
    """The one sentence; nothing was printed beside it."""
    assert main(["explain", "pod", "web", "--request-timeout=5", *arguments]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("koord: ")
    return line


def status_body(code: int, reason: str, message: str) -> tuple[int, bytes]:
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    return code, json.dumps({**document, "message": message}).encode()


Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("response", "status", "said"),
    [
        (status_body(401, "Unauthorized", "Unauthorized"), NOT_ALLOWED, "does not know who you are (401 Unauthorized)"),
        (status_body(403, "Forbidden", "you may not"), NOT_ALLOWED, "does not allow it (403): you may not"),
        (status_body(500, "InternalError", "broken\nbadly"), NOT_REACHED, "broken badly (500 InternalError)"),
        ((502, b"<html>a proxy</html>"), NOT_REACHED, "<html>a proxy</html> (502"),
        ((200, b"<html>"), NOT_REACHED, "is not JSON"),
        ((200, b"[]"), NOT_REACHED, ""),
        ((200, b"\xff\xfe"), NOT_REACHED, "is not JSON"),
        ((0, b""), NOT_REACHED, "the server closed the connection without a response"),
    ],
)
def test_what_an_api_server_may_respond(
    response: tuple[int, bytes], status: int, said: str, tmp_path: Path, capsys: Captured
) -> None:
    with serving(response) as server:
        path = kubeconfig_of(tmp_path, f"http://127.0.0.1:{server.server_port}")
        assert said in refused(capsys, status, f"--kubeconfig={path}")


def test_an_api_server_that_says_nothing(tmp_path: Path, capsys: Captured) -> None:
    with serving(None) as server:
        path = kubeconfig_of(tmp_path, f"http://127.0.0.1:{server.server_port}")
        said = refused(capsys, NOT_REACHED, f"--kubeconfig={path}", "--request-timeout=0.2")
    assert said.endswith("cannot be queried: no response within 0.2 s")


def test_an_api_server_that_is_not_there(tmp_path: Path, capsys: Captured) -> None:
    path = kubeconfig_of(tmp_path, "https://127.0.0.1:1")
    said = refused(capsys, NOT_REACHED, f"--kubeconfig={path}")
    assert said == (
        f'koord: the cluster "a" (context "a" of {path}, https://127.0.0.1:1) cannot be queried: connection refused: '
        "nothing listens there; does it run?"
    )


def test_a_server_that_does_not_speak_tls(tmp_path: Path, capsys: Captured) -> None:
    with serving((200, b"{}")) as server:
        path = kubeconfig_of(tmp_path, f"https://127.0.0.1:{server.server_port}")
        assert "TLS fails (" in refused(capsys, NOT_REACHED, f"--kubeconfig={path}")


def changed(cluster: ExplainedCluster, folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> str:
    """The kubeconfig of the cluster with something wrong in its cluster or its user."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    change(document["clusters"][0]["cluster"], document["users"][0]["user"])
    (folder / "changed").write_text(yaml.safe_dump(document))
    return f"--kubeconfig={folder / 'changed'}"


def test_a_certificate_that_is_not_trusted(cluster: ExplainedCluster, tmp_path: Path, capsys: Captured) -> None:
    option = changed(cluster, tmp_path, lambda server, user: server.pop("certificate-authority-data"))
    assert "its certificate is not trusted (" in refused(capsys, NOT_REACHED, option)


def test_a_certificate_for_another_name(cluster: ExplainedCluster, tmp_path: Path, capsys: Captured) -> None:
    option = changed(cluster, tmp_path, lambda server, user: server.update({"tls-server-name": "elsewhere"}))
    assert "its certificate is not trusted (" in refused(capsys, NOT_REACHED, option)


def test_a_token_that_is_not_known(cluster: ExplainedCluster, tmp_path: Path, capsys: Captured) -> None:
    option = changed(cluster, tmp_path, lambda server, user: user.update({"token": "wrong"}))
    assert "does not know who you are (401" in refused(capsys, NOT_ALLOWED, option)


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (
            {
                "exec": {
                    "command": "no-such-plugin",
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "interactiveMode": "Never",
                }
            },
            "no-such-plugin",
        ),
        ({"tokenFile": "no-such-token"}, "no-such-token"),
        ({"client-certificate-data": "!", "client-key-data": "!"}, "not base64"),
    ],
)
def test_credentials_that_cannot_be_had(
    user: dict[str, Any], said: str, cluster: ExplainedCluster, tmp_path: Path, capsys: Captured
) -> None:
    def change(server: dict[str, Any], found: dict[str, Any]) -> None:
        found.clear()
        found.update(user)

    assert said in refused(capsys, UNUSABLE, changed(cluster, tmp_path, change))


@pytest.mark.parametrize("text", ["{", "[1, 2]", "\x00", "kind: Pod", "clusters: 3", "a: &a [*a]"])
def test_a_kubeconfig_that_is_none(text: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "bad").write_text(text)
    refused(capsys, UNUSABLE, f"--kubeconfig={tmp_path / 'bad'}")


def test_a_folder_in_place_of_a_kubeconfig(tmp_path: Path, capsys: Captured) -> None:
    assert "Is a directory" in refused(capsys, UNUSABLE, f"--kubeconfig={tmp_path}")


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://[::1", "http://h:99999", "http://h:x", "http://h:0", "//", "http://a\x00b"]
)
def test_an_address_that_is_none(url: str, capsys: Captured) -> None:
    assert main(["explain", "pod", "web", f"--scheduler={url}"]) in (NOT_REACHED, UNUSABLE)
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ((200, b"{}"), "is that a koord-scheduler?"),
        ((200, b"[]"), "is that a koord-scheduler?"),
        ((200, b"hello"), "is that a koord-scheduler?"),
        ((503, b'{"message": "the instance is not leader"}'), "koord: the instance is not leader"),
        ((0, b""), "cannot be queried"),
    ],
)
def test_what_a_scheduler_may_respond(response: tuple[int, bytes], said: str, capsys: Captured) -> None:
    with serving(response) as server:
        assert said in refused(capsys, NOT_REACHED, f"--scheduler=http://127.0.0.1:{server.server_port}")


def test_a_scheduler_that_says_nothing(capsys: Captured) -> None:
    with serving(None) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        said = refused(capsys, NOT_REACHED, f"--scheduler={url}", "--request-timeout=0.2")
    assert said == f"koord: the scheduler at {url} cannot be queried: no response within 0.2 s"


def test_a_document_of_another_shape_is_no_explanation(capsys: Captured) -> None:
    with serving((200, b'{"pod": "default/web", "attempts": 7}')) as server:
        said = refused(capsys, NOT_REACHED, f"--scheduler=http://127.0.0.1:{server.server_port}")
    assert said.endswith("does not explain a pod; is that a koord-scheduler?")


def test_a_defect_is_said_with_its_place(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    async def broken(*arguments: object) -> NoReturn:
        raise KeyError("attempts")

    monkeypatch.setattr("koordinator.cli.explain.explain", broken)
    said = refused(capsys, DEFECT, "--scheduler=http://127.0.0.1:1")
    assert said.startswith("koord: a defect of this command, please report it: KeyError: 'attempts' (test_explain_fau")


def test_no_scheduler_but_an_api_is_a_status_of_its_own(cluster: ExplainedCluster, capsys: Captured) -> None:
    arguments = ["explain", "pod", "web", f"--kubeconfig={cluster.kubeconfig}", "--port=1"]
    assert main(arguments) == API_ALONE
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1
    assert "pod default/web" in printed.out


def test_an_interruption_is_said(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    async def interrupted(*arguments: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("koordinator.cli.explain.explain", interrupted)
    assert refused(capsys, INTERRUPTED, "--scheduler=http://127.0.0.1:1") == "koord: interrupted"


def koord(cluster: ExplainedCluster, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "koordinator.cli.main", "explain", "pod", "web", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, **options)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Whoever runs the tests may have handed down that SIGINT is ignored, as shells do for what runs in the background;
    a command that is told so does not end by it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_it_waits(cluster: ExplainedCluster, tmp_path: Path) -> None:
    with serving(None) as server:
        process = koord(cluster, f"--scheduler=http://127.0.0.1:{server.server_port}")
        assert server.requested.wait(60)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (INTERRUPTED, b"koord: interrupted\n")


def test_a_reader_that_has_gone(cluster: ExplainedCluster) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = koord(cluster, *cluster.arguments, stdout=writer)
    os.close(writer)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (PIPE_CLOSED, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_disk_that_is_full(cluster: ExplainedCluster) -> None:
    with Path("/dev/full").open("wb") as full:
        process = koord(cluster, *cluster.arguments, stdout=full)
        _, error = process.communicate(timeout=60)
    expected = b"koord: the output could not be written: No space left on device\n"
    assert (process.returncode, error) == (NOT_REACHED, expected)


@pytest.mark.parametrize("environment", [{"LANG": "C", "TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}])
def test_any_locale_will_do(environment: dict[str, str], cluster: ExplainedCluster) -> None:
    cluster.documents["default/web"] = {
        "pod": "default/web",
        "queue": {"pool": "unschedulable", "attempts": 1, "triedAgainWhen": ["a node is added"]},
        "message": "名 … •",
        "attempts": [],
    }
    try:
        process = koord(
            cluster, *cluster.arguments, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"], **environment}
        )
        out, error = process.communicate(timeout=60)
    finally:
        del cluster.documents["default/web"]
    assert (process.returncode, error) == (0, b"")
    assert b"* a node is added" in out
    assert "•" not in out.decode()
