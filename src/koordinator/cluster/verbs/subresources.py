"""Subresources that are not plain views of their object: what a POST to ``…/NAME/SUBRESOURCE`` does.

``status`` is a view and goes through update and patch; an entry here is an action of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.verbs.binding import bind
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target

Action = Callable[[Environment, Target, Document, WriteOptions], Awaitable[None]]
"""(environment, target, body, options); answered with a Status of success."""

ACTIONS: Final[Mapping[tuple[str, str, str], Action]] = {
    ("", "pods", "binding"): bind,
}
"""(group, plural, subresource) -> action."""
