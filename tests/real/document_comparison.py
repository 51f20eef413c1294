"""How documents of services are compared with the original's.

Differences that are meant: objects show the fields that we read, not all that there are; selectors of affinity terms
show what they require, where the original prints an empty object for each requirement; the generation of a node is a
number of its own in every process, and so is the time at which a process first saw a pod on its node.
"""

from __future__ import annotations

from typing import Any

OURS_ALONE, PER_PROCESS = {"Selector", "NamespaceSelector"}, {"generation", "timestamp"}


def differences(theirs: Any, ours: Any, path: str = "") -> list[str]:
    """Where the documents disagree, but for what this module's docstring names."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [found for key in sorted({*theirs, *ours}) for found in of_key(theirs, ours, key, f"{path}/{key}")]
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        pairs = zip(in_order(theirs), in_order(ours), strict=True)
        return [
            found for index, (one, other) in enumerate(pairs) for found in differences(one, other, f"{path}/{index}")
        ]
    return [] if theirs == ours else [f"{path}: {theirs!r} {ours!r}"]


def of_key(theirs: dict[str, Any], ours: dict[str, Any], key: str, path: str) -> list[str]:
    if key not in ours or key not in theirs:
        return [f"{path}: only {'the original' if key in theirs else 'we'} have it"]
    if key in PER_PROCESS:
        return []
    if key in OURS_ALONE:
        same = type(theirs[key]) is type(ours[key]) and len(theirs[key]) == len(ours[key])
        return [] if same else [f"{path}: {theirs[key]!r} {ours[key]!r}"]
    if key in ("Pod", "pod", "node"):
        names = [each[key]["metadata"]["name"] for each in (theirs, ours)]
        return [] if names[0] == names[1] else [f"{path}: {names}"]
    return differences(theirs[key], ours[key], path)


def in_order(items: list[Any]) -> list[Any]:
    """Lists that the original makes from maps have no order."""

    def key(item: Any) -> str:
        holder = item.get("Pod", item.get("pod")) if isinstance(item, dict) else None
        return str(holder["metadata"]["name"] if holder else item.get("Port") if isinstance(item, dict) else item)

    return sorted(items, key=key)


def unlike(theirs: Any, ours: Any, path: str = "") -> list[str]:
    """Where ours has not the keys or the types of theirs; it may have more keys."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        missing = [f"{path}/{key} is missing" for key in theirs if key not in ours]
        return missing + [
            each for key in theirs if key in ours for each in unlike(theirs[key], ours[key], f"{path}/{key}")
        ]
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            return [f"{path} has {len(ours)} items, not {len(theirs)}"]
        return [each for one, other in zip(theirs, ours, strict=True) for each in unlike(one, other, f"{path}[]")]
    return [] if type(theirs) is type(ours) else [f"{path} is {ours!r}, not {theirs!r}"]
