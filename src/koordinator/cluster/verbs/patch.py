"""PATCH: change parts of the newest state; without a resourceVersion in the patch it never conflicts."""

from __future__ import annotations

from koordinator.cluster.patch import apply_patch
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.modify import modify
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target


async def patch(
    environment: Environment,
    target: Target,
    content_type: str,
    body: bytes,
    options: WriteOptions | None = None,
) -> Stored:
    """Raises ApiError: 415 for a format that the kind does not take, 400 and 422 for a patch that does not fit."""
    resource = target.resource
    return await modify(environment, target, lambda old: apply_patch(content_type, old, body, resource), options)
