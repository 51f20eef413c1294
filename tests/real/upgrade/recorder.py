"""Everything that happens to objects of some resources, as watches of the API server tell it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from koordinator.api.document import Document
from tests.real.administrator import unverified
from tests.real.control_plane import TOKEN, ControlPlane


@dataclass(frozen=True, slots=True)
class Event:
    """``at`` is when it was heard of, by the clock of time.time; ``kind`` is ADDED, MODIFIED or DELETED."""

    at: float
    resource: str
    kind: str
    object: Document

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.object["metadata"]["uid"])


class Recorder:
    """``events`` are in the order of each resource; of two resources, in the order in which they were heard of."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.lost: list[str] = []
        """Why a watch ended before the test did: nothing is proven then."""
        self._ends = threading.Event()

    def of(self, resource: str) -> list[Event]:
        return [each for each in list(self.events) if each.resource == resource]

    def latest(self, resource: str) -> Mapping[str, Document]:
        """Name -> the object as it was last heard of; without those that are gone."""
        found: dict[str, Document] = {}
        for each in self.of(resource):
            if each.kind == "DELETED":
                found.pop(each.name, None)
            else:
                found[each.name] = each.object
        return found

    def _watch(self, resource: str, path: str, connection: http.client.HTTPSConnection, version: str) -> None:
        try:
            headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}
            connection.request("GET", f"{path}?watch=1&resourceVersion={version}", headers=headers)
            with connection.getresponse() as lines:
                for line in lines:
                    event: dict[str, Any] = json.loads(line)
                    if event["type"] == "ERROR":
                        self.lost.append(f"{resource}: {event['object']}")
                        return
                    self.events.append(Event(time.time(), resource, event["type"], event["object"]))
            reason = "it ended"
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = repr(error)
        if not self._ends.is_set():
            self.lost.append(f"{resource}: {reason}")


@contextmanager
def recording(plane: ControlPlane, paths: Mapping[str, str]) -> Iterator[Recorder]:
    """``paths``: resource -> where it is listed. Objects that are there already come first, as ADDED."""
    recorder = Recorder()
    connections, threads = [], []
    for resource, path in paths.items():
        status, listed = plane.request("GET", path)
        assert status == 200, f"{path}: {listed}"
        now = time.time()
        recorder.events += [Event(now, resource, "ADDED", each) for each in listed["items"]]
        connection = http.client.HTTPSConnection("127.0.0.1", plane.port, context=unverified())
        connection.connect()
        connections.append(connection)
        version = listed["metadata"]["resourceVersion"]
        threads.append(threading.Thread(target=recorder._watch, args=(resource, path, connection, version)))
    for thread in threads:
        thread.start()
    try:
        yield recorder
    finally:
        recorder._ends.set()
        for connection in connections:
            with suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)
        for connection in connections:
            connection.close()
