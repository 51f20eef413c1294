"""GET of one object."""

from __future__ import annotations

from koordinator.cluster.errors import not_found
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.list import check_not_too_new
from koordinator.cluster.verbs.options import ListOptions
from koordinator.cluster.verbs.target import Target


def get(environment: Environment, target: Target, options: ListOptions) -> Stored:
    """The newest state, which satisfies any ``resourceVersion`` that is not in the future. Raises ApiError 404."""
    check_not_too_new(environment, options.revision)
    stored = environment.storage.get(target.key)
    if stored is None:
        raise not_found(target.resource, target.name)
    return stored
