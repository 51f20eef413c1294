"""``/debug/progress``: how far a program has come with what the API server has told it.

Whoever has written an object learns here whether the program has read it, and whether it still works on what it has
read. A metric would say the same, but a page of metrics costs hundreds of times as much. Imported only where a program
serves HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from koordinator.kube.informer import Informer
from koordinator.kube.pages import Request, Response, json_response
from koordinator.kube.serving import HealthServer

PATH: Final = "/debug/progress"


def add_progress(
    server: HealthServer,
    informers: Iterable[Informer[Any]],
    in_hand: Mapping[str, Callable[[], int]],
    done: Mapping[str, Callable[[], int]] = MappingProxyType({}),
) -> None:
    """Serve the page, on leaders and followers alike; before the server starts.

    ``seen`` maps each selection of objects to the resourceVersion up to which the program has seen its changes;
    ``inHand`` is what ``in_hand`` counts: what the program has read and not dealt with yet. ``done`` counts what it
    does again and again.
    """

    async def handle(request: Request) -> Response:
        return json_response(
            {
                "seen": {str(informer.selection): informer.resource_version for informer in informers},
                "inHand": {name: count() for name, count in in_hand.items()},
                "done": {name: count() for name, count in done.items()},
            }
        )

    server.add_route(PATH, handle)
