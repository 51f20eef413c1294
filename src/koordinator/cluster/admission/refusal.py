"""How a plugin refuses a request: 403, under the name that the object has or will have."""

from __future__ import annotations

from koordinator.cluster.errors import ApiError, forbidden
from koordinator.cluster.verbs.environment import Attributes


def refused(attributes: Attributes, why: str) -> ApiError:
    """Names are generated after the plugins have seen the object, so that its base stands for one."""
    metadata = (attributes.obj or {}).get("metadata") or {}
    name = attributes.target.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
    return forbidden(attributes.target.resource, str(name), why)
