"""What is said of the pod that no node can take: by the scheduler when asked, and on the pod itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from koordinator.api.codec import decode_any
from koordinator.api.kinds import PODS
from koordinator.cli.explain_source import Place, ask
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import Client


@dataclass(frozen=True, slots=True)
class Explained:
    """A pod that is pending; ``notes`` are those of its events, ``condition`` is the message of PodScheduled."""

    name: str
    message: str
    advice: tuple[str, ...]
    closest: str
    """The node that comes closest and what it lacks; empty when no node was judged."""
    condition: str
    notes: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether everybody says the same."""
        return bool(self.message) and self.message == self.condition and self.message in self.notes


async def explain(client: Client, scheduler_port: int, namespace: str, name: str) -> Explained:
    """Ask the scheduler as ``koord explain pod`` does, and read the pod and its events."""
    place = Place(f"http://127.0.0.1:{scheduler_port}", None, ("", ""), 0, Path())
    document = await ask(place, f"/debug/explain/{namespace}/{name}")
    pod = await client.get(PODS, name, namespace)
    events = decode_any(await client.raw("GET", EVENTS_V1.path(namespace)))["items"]
    return Explained(
        name=name,
        message=document.get("message", ""),
        advice=tuple(document.get("advice", ())),
        closest=_closest(document),
        condition=next((each.message for each in pod.status.conditions if each.type == "PodScheduled"), ""),
        notes=tuple(event["note"] for event in events if event["regarding"]["name"] == name),
    )


def _closest(document: Any) -> str:
    for node in document.get("closestNodes", ()):
        lacks = [text for lack in node["lacks"] for text in lack["details"] or lack["reasons"]]
        return f"{node['node']}: {'; '.join(lacks)}"
    return ""
