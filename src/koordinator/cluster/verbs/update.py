"""PUT: replace an object or its status."""

from __future__ import annotations

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.modify import modify
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target


async def update(
    environment: Environment, target: Target, obj: Document, options: WriteOptions | None = None
) -> Stored:
    """With a resourceVersion in ``obj`` a newer state is a conflict; without one the newest is replaced."""
    # Strategies change what they are given, and each attempt starts from what was sent.
    sent = msgspec.json.encode(obj)
    return await modify(environment, target, lambda old: msgspec.json.decode(sent, type=dict), options)
