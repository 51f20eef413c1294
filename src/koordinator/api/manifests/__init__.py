"""CustomResourceDefinitions derived from the wire types: for ``config/crd`` and for what a local cluster installs."""

from __future__ import annotations

from typing import Any

from koordinator.api.manifests.definitions import DEFINITIONS
from koordinator.api.manifests.render import render_definition


def custom_resource_definitions() -> list[dict[str, Any]]:
    """All definitions as documents, each with apiVersion, kind, metadata and spec."""
    return [render_definition(definition) for definition in DEFINITIONS]
