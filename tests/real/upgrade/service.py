"""The cluster IP of a Service without kube-proxy: an address of the loopback that leads to the pods which are ready."""

from __future__ import annotations

import random
import selectors
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pytest

_BYTES: Final = 1 << 16
_CHOICE: Final = random.SystemRandom()


def service_range() -> str:
    """A --service-cluster-ip-range of this test's own; any address of the loopback may be listened on."""
    return f"127.{_CHOICE.randrange(1, 255)}.{_CHOICE.randrange(1, 255)}.0/24"


def address_in(addresses: str) -> str:
    return addresses.replace(".0/24", ".10")


class Endpoints:
    """The ports that connections are spread over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ports: list[int] = []

    def add(self, port: int) -> None:
        with self._lock:
            self._ports.append(port)

    def remove(self, port: int) -> None:
        with self._lock:
            self._ports.remove(port)

    def connect(self) -> socket.socket | None:
        """To one of them by chance; to another one where that does not answer, as a probe would soon have it."""
        with self._lock:
            ports = _CHOICE.sample(self._ports, len(self._ports))
        for port in ports:
            with suppress(OSError):
                return socket.create_connection(("127.0.0.1", port), 5)
        return None


@contextmanager
def served(address: str, port: int = 443) -> Iterator[Endpoints]:
    """Skips the test where this user may not listen on the port."""
    endpoints = Endpoints()

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            other = endpoints.connect()
            if other is not None:
                with other:
                    _copy_both_ways(self.request, other)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    try:
        server = Server((address, port), Relay)
    except PermissionError:
        pytest.skip(f"listening on port {port} needs root, or sysctl net.ipv4.ip_unprivileged_port_start={port}")
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,))
        thread.start()
        try:
            yield endpoints
        finally:
            server.shutdown()
            thread.join()


def _copy_both_ways(one: socket.socket, other: socket.socket) -> None:
    """Until either side closes, or is gone."""
    partner = {one: other, other: one}
    with selectors.DefaultSelector() as selector, suppress(OSError):
        for each in partner:
            selector.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                each = next(found for found in partner if found is key.fileobj)
                data = each.recv(_BYTES)
                if not data:
                    return
                partner[each].sendall(data)
