"""The storage class of claims that name none: the API server gives it to new ones, the volume binder to older ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordinator.api.volume import DEFAULT_CLASS


def default_storage_class(classes: Iterable[tuple[str, str, Mapping[str, str]]]) -> str:
    """The name of the default class, empty if there is none: the one that was made last, and of several the first by
    name. Each class is its time of creation as Kubernetes writes it, its name and its annotations."""
    marked = [(created, name) for created, name, annotations in classes if annotations.get(DEFAULT_CLASS) == "true"]
    newest = max((created for created, _ in marked), default="")
    return min((name for created, name in marked if created == newest), default="")
