from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import AF_UNIX, socket

from benchmarks.nri_relay import NRIRelay
from koordinator.api.protobuf import nri_pb2 as nri

_CALLED, _CALLS = 1, 2
"""The conversations in which the plugin is called, and in which it calls."""
_REQUEST, _RESPONSE = 1, 2


def message(stream: int, kind: int, content: bytes, conversation: int = _CALLED) -> bytes:
    whole = struct.pack(">IIBB", len(content), stream, kind, 0) + content
    # In two frames, as Go's side sends what is long.
    parts = whole[:10], whole[10:]
    return b"".join(struct.pack(">II", conversation, len(part)) + part for part in parts if part)


def request(stream: int, method: str, payload: bytes = b"", conversation: int = _CALLED) -> bytes:
    content = nri.TtrpcRequest(service="s", method=method, payload=payload).SerializeToString()
    return message(stream, _REQUEST, content, conversation)


def received(source: socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        content += source.recv(count - len(content))
    return content


@contextmanager
def relayed(folder: Path) -> Iterator[tuple[NRIRelay, socket, socket]]:
    """The relay, the runtime's end of a connection and the plugin's."""
    with socket(AF_UNIX) as listening, socket(AF_UNIX) as plugin:
        listening.bind(str(folder / "runtime"))
        listening.listen()
        relay = NRIRelay(folder / "relay", folder / "runtime")
        with relay.running():
            plugin.connect(str(relay.socket))
            runtime, _ = listening.accept()
            with runtime:
                yield relay, runtime, plugin


def pass_on(source: socket, content: bytes, target: socket) -> None:
    source.sendall(content)
    assert received(target, len(content)) == content


def test_a_call_takes_until_its_response_has_come(tmp_path: Path) -> None:
    with relayed(tmp_path) as (relay, runtime, plugin):
        pass_on(runtime, request(3, "CreateContainer") + request(5, "UpdateContainer"), plugin)
        pass_on(plugin, message(5, _RESPONSE, b""), runtime)
    create, update = relay.calls
    assert (create.method, create.seconds) == ("CreateContainer", None)
    assert update.method == "UpdateContainer"
    assert update.seconds is not None
    assert 0 < update.seconds < 10


def test_what_the_plugin_calls_is_passed_on_and_not_timed(tmp_path: Path) -> None:
    with relayed(tmp_path) as (relay, runtime, plugin):
        pass_on(plugin, request(1, "RegisterPlugin", conversation=_CALLS), runtime)
        pass_on(runtime, message(1, _RESPONSE, b"", _CALLS), plugin)
    assert not relay.calls


def test_an_event_of_an_older_runtime_has_the_name_of_the_event(tmp_path: Path) -> None:
    event = nri.StateChangeEvent(event=nri.RUN_POD_SANDBOX).SerializeToString()
    with relayed(tmp_path) as (relay, runtime, plugin):
        pass_on(runtime, request(1, "StateChange", event), plugin)
    assert [call.method for call in relay.calls] == ["RUN_POD_SANDBOX"]


def test_a_plugin_that_leaves_is_gone_for_the_runtime_and_may_return(tmp_path: Path) -> None:
    with relayed(tmp_path) as (relay, runtime, plugin):
        plugin.shutdown(2)
        assert runtime.recv(1) == b""
        with socket(AF_UNIX) as again:
            again.connect(str(relay.socket))
            again.sendall(request(1, "RegisterPlugin", conversation=_CALLS))
            again.shutdown(2)
    assert relay.connections == 2
