"""Arguments of plugins: structs that complete and check themselves, and the shapes that several plugins share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Self

import msgspec

from koordinator.api.component_configuration import Strict
from koordinator.api.meta import LabelSelector
from koordinator.api.pod import Pod
from koordinator.api.strict_decoding import decode_strictly
from koordinator.api.struct_fields import struct_fields
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.configuration.document import VERSION
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector

ResourceThresholds = dict[str, float]
"""Resource -> percent."""


class Arguments(Strict):
    """Base of the arguments of built-in plugins."""

    lenient: ClassVar[bool] = False
    """Unknown fields are remarked on instead of refused, as the original does with plugins that are not its own."""

    def completed(self, path: str) -> Self:
        """With the defaults that depend on other fields. Raises ConfigurationError with a path below ``path``."""
        return self

    def adjusted(self, interval: timedelta) -> tuple[Self, Sequence[str]]:
        """As they have to be for cycles that begin every ``interval``, and what was changed, in sentences that begin
        with the name of a field."""
        return self, ()


class Namespaces(Strict):
    include: list[str] = []
    exclude: list[str] = []

    def allow(self, namespace: str) -> bool:
        if self.include:
            return namespace in self.include
        return namespace not in self.exclude


class PodSelector(Strict):
    name: str = ""
    selector: LabelSelector | None = None


class PriorityThreshold(Strict):
    value: int | None = None
    name: str = ""

    def check(self, path: str) -> None:
        """Raises ConfigurationError when both are given."""
        if self.value is not None and self.name:
            allowed = "only one of priorityThreshold fields can be set"
            raise ConfigurationError(path, msgspec.to_builtins(self), allowed)


def check_namespaces(namespaces: Namespaces | None, path: str) -> None:
    """Raises ConfigurationError when both lists are given."""
    if namespaces is not None and namespaces.include and namespaces.exclude:
        allowed = "only one of Include/Exclude namespaces can be set"
        raise ConfigurationError(path, {"include": namespaces.include, "exclude": namespaces.exclude}, allowed)


def checked_selector(selector: LabelSelector | None, path: str) -> CompiledSelector | None:
    """None for none: no restriction. Raises ConfigurationError."""
    if selector is None:
        return None
    try:
        return compile_selector(selector)
    except SelectorError as error:
        raise ConfigurationError(path, msgspec.to_builtins(selector), str(error)) from error


class PodSelection:
    """Which pods a plugin looks at: those of allowed namespaces that any of the selectors matches."""

    def __init__(self, namespaces: Namespaces | None, selectors: Sequence[PodSelector], path: str) -> None:
        check_namespaces(namespaces, f"{path}.evictableNamespaces")
        self._namespaces = namespaces or Namespaces()
        compiled = (
            checked_selector(each.selector, f"{path}.podSelectors[{index}].selector")
            for index, each in enumerate(selectors)
        )
        self._selectors = [selector for selector in compiled if selector is not None]

    @property
    def is_selective(self) -> bool:
        """Whether any selector was given."""
        return bool(self._selectors)

    def matches(self, pod: Pod) -> bool:
        if not self._namespaces.allow(pod.metadata.namespace):
            return False
        return not self._selectors or any(selector.matches(pod.metadata.labels) for selector in self._selectors)


def make_arguments(
    plugin: str, expected: type[Any] | None, document: Mapping[str, Any], path: str, *, complete: bool = True
) -> tuple[Any, list[str]]:
    """The arguments of a plugin, completed, and what of them has no effect. Raises ConfigurationError.

    The type meta may be left out; where it stands, it must be right. Without an expected type they are handed over as
    they are written.
    """
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind not in (None, "", f"{plugin}Args"):
        raise ConfigurationError(f"{path}.kind", kind, f"{plugin}Args")
    if version not in (None, "", VERSION):
        raise ConfigurationError(f"{path}.apiVersion", version, VERSION)
    fields = {name: value for name, value in document.items() if name not in ("kind", "apiVersion")}
    if expected is None:
        return fields, []
    remarks: list[str] = []
    if isinstance(expected, type) and issubclass(expected, Arguments) and expected.lenient:
        known = {field.wire_name for field in struct_fields(expected)}
        remarks = [f"{path}.{name} has no effect: there is no such field" for name in fields if name not in known]
        fields = {name: value for name, value in fields.items() if name in known}
    arguments = decode_strictly(fields, expected, path)
    if complete and isinstance(arguments, Arguments):
        arguments = arguments.completed(path)
    return arguments, remarks
