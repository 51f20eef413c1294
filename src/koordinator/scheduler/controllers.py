"""Which plugins' controllers run beside scheduling: those of one instance of each plugin that the flag selects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koordinator.scheduler.engine.binding_points import ClusterWriter
from koordinator.scheduler.engine.extender import Controller, ControllerProvider
from koordinator.scheduler.engine.profile import Profile


def is_selected(name: str, selection: Sequence[str]) -> bool:
    """``--controller-plugins``: the first of ``name`` and ``-name`` decides, else whether there is a ``*``."""
    for entry in selection:
        if entry == name:
            return True
        if entry == f"-{name}":
            return False
    return "*" in selection


def make_controllers(
    profiles: Iterable[Profile], selection: Sequence[str], writer: ClusterWriter
) -> list[tuple[str, Controller]]:
    """(plugin, controller) of every plugin that has some; the instance of the first profile speaks for the others."""
    found: dict[str, ControllerProvider] = {}
    for profile in profiles:
        for provider in profile.all(ControllerProvider):
            found.setdefault(provider.name, provider)
    return [
        (name, controller)
        for name, provider in found.items()
        if is_selected(name, selection)
        for controller in provider.controllers(writer)
    ]
