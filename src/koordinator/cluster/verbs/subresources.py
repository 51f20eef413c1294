"""Subresources that are not plain views of their object: what a POST to ``…/NAME/SUBRESOURCE`` does.

``status`` and ``scale`` are views and go through update and patch; an entry here is an action of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Resource
from koordinator.cluster.verbs.binding import bind
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.eviction import EVICTION, evict
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target

Action = Callable[[Environment, Target, Document, WriteOptions], Awaitable[None]]
"""(environment, target, body, options); answered with a Status of success."""

ACTIONS: Final[Mapping[tuple[str, str, str], Action]] = {
    ("", "pods", "binding"): bind,
    ("", "pods", "eviction"): evict,
}
"""(group, plural, subresource) -> action."""
ACTION_KINDS: Final[Mapping[str, Resource]] = {"eviction": EVICTION}
"""Subresource -> what its body is, where fields that this does not have are told."""
