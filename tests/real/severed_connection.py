"""A way to an API server that can be cut and mended: what others change meanwhile goes another way."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

_CHUNK = 65_536


class Connection:
    """Forwards bytes between whoever connects to ``port`` and a server on loopback."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]
        self._accepting = self._accept()

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        # A listener that somebody waits on is only woken up by shutting it down.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        with self._lock:
            ends, self._open = self._open, set()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def mend(self) -> None:
        self._listener = self._listen(self.port)
        self._accepting = self._accept()

    @staticmethod
    def _listen(port: int) -> socket.socket:
        return socket.create_server(("127.0.0.1", port), reuse_port=False)

    def _accept(self) -> threading.Thread:
        def accept(listener: socket.socket) -> None:
            while True:
                try:
                    client, _ = listener.accept()
                    server = socket.create_connection(("127.0.0.1", self._server_port))
                except OSError:
                    return
                with self._lock:
                    self._open |= {client, server}
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=_forward, args=(source, target), daemon=True).start()

        thread = threading.Thread(target=accept, args=(self._listener,), daemon=True)
        thread.start()
        return thread


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(_CHUNK):
            target.sendall(chunk)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextmanager
def severable(kubeconfig: Path, folder: Path) -> Iterator[tuple[Connection, Path]]:
    """The connection, and a kubeconfig whose server is behind it."""
    document = json.loads(kubeconfig.read_text())
    cluster = document["clusters"][0]["cluster"]
    port = urlsplit(cluster["server"]).port
    assert port is not None
    connection = Connection(port)
    cluster["server"] = f"https://127.0.0.1:{connection.port}"
    path = folder / "severable-kubeconfig"
    path.write_text(json.dumps(document))
    try:
        yield connection, path
    finally:
        connection.cut()
