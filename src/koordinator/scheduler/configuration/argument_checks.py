"""Checks of values that arguments of several plugins have."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Final

from koordinator.base.errors import ConfigurationError

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")


_LONGEST_NAME: Final = 63


_LONGEST_SUBDOMAIN: Final = 253


_REQUESTS: Final = "requests."


QUALIFIED_NAME: Final = "a name of letters, digits, '-', '_' and '.', with at most a DNS subdomain and '/' before it"


def is_qualified_name(text: str) -> bool:
    """Whether the text can be a label key or a resource name."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def is_extended_resource(name: str) -> bool:
    """Whether the name is that of a resource which Kubernetes itself does not define."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_REQUESTS):
        return False
    return is_qualified_name(_REQUESTS + name)


def check_range(value: int, path: str, least: int, most: int | None = None) -> None:
    """Raises ConfigurationError for a value below ``least`` or above ``most``."""
    if value < least or (most is not None and value > most):
        raise ConfigurationError(path, value, f"{least} or more" if most is None else f"{least} to {most}")


def check_candidate_nodes(percentage: int, absolute: int, path: str, *, is_used: bool = True) -> None:
    """Raises ConfigurationError for invalid numbers of candidate nodes for preemption. ``is_used``: at least one node
    must be allowed."""
    check_range(percentage, f"{path}.minCandidateNodesPercentage", 0, 100)
    check_range(absolute, f"{path}.minCandidateNodesAbsolute", 0)
    if is_used and percentage == absolute == 0:
        allowed = "more than 0 where minCandidateNodesAbsolute is 0"
        raise ConfigurationError(f"{path}.minCandidateNodesPercentage", percentage, allowed)


def check_one_of(value: str, path: str, allowed: Collection[str]) -> None:
    """Raises ConfigurationError for any other value."""
    if value not in allowed:
        raise ConfigurationError(path, value, f"one of {', '.join(each or repr(each) for each in allowed)}")


def check_values(values: Mapping[str, int], path: str, least: int, most: int) -> None:
    """``check_range`` for each of the values."""
    for name, value in values.items():
        check_range(value, f"{path}[{name}]", least, most)


def check_duration(duration: timedelta, path: str) -> None:
    """Raises ConfigurationError for a negative duration."""
    if duration < timedelta():
        raise ConfigurationError(path, str(duration), "0s or more")
