"""Templates: the fixed sizes of GPU shares of some models, defined by a ConfigMap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.api.codec import DecodeError, convert
from koordinator.api.core import ConfigMap
from koordinator.api.pod import ResourceList
from koordinator.base.errors import ConfigurationError
from koordinator.base.strict_yaml import load_documents

_KEY: Final = "data.yaml"
Templates = dict[str, dict[str, Mapping[str, int]]]
"""``vendor-model`` -> name of the template -> amounts of a GPU by resource."""


def read_templates(config_map: ConfigMap) -> Templates:
    """Decode the ConfigMap. Raises DecodeError or ConfigurationError."""
    documents = load_documents(config_map.data.get(_KEY, ""), f"ConfigMap {config_map.metadata.key}: {_KEY}")
    if len(documents) > 1:
        raise ConfigurationError(f"ConfigMap {config_map.metadata.key}: {_KEY}", f"{len(documents)} documents", "one")
    found = convert(documents[0] if documents else {}, dict[str, dict[str, ResourceList]])
    return {
        model: {name: {key: each.value for key, each in amounts.items() if each} for name, amounts in templates.items()}
        for model, templates in found.items()
    }


def matching_templates(templates: Templates, amounts: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """``vendor-model`` -> the names of the templates that equal these amounts of a GPU; models without any are
    omitted."""
    wanted = {name: amount for name, amount in amounts.items() if amount}
    found = {
        model: tuple([name for name, each in sorted(of_model.items()) if each == wanted])
        for model, of_model in templates.items()
    }
    return {model: names for model, names in found.items() if names}


def templates_of(config_map: object) -> tuple[Templates, str]:
    """The templates, and the error in the ConfigMap, which may be missing."""
    if not isinstance(config_map, ConfigMap):
        return {}, ""
    try:
        return read_templates(config_map), ""
    except (DecodeError, ConfigurationError) as error:
        return {}, str(error)
