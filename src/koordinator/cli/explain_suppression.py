"""The best-effort pods of a node that are held down, as koordlet has written it into the NodeMetric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console

from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.quantity import Quantity
from koordinator.cli.explain_terminal import escape, print_text

_EXTENSION: Final = "suppression"


def suppression_document(metric: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The last report about best-effort pods, and their usage; None where they are not suppressed."""
    status = (metric or {}).get("status") or {}
    found = [(pod, said) for pod in status.get("podsMetric") or () if (said := _said(pod)) is not None]
    if not found:
        return None
    _, first = found[0]
    return {
        **first,
        "reported": status.get("updateTime") or "",
        "pods": [f"{pod.get('namespace', '')}/{pod.get('name', '')}" for pod, _ in found],
        "used": round(sum(_cores(pod) for pod, _ in found), 2),
    }


def _said(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = ((pod.get("extensions") or {}).get(EXTENSIONS_MEMBER) or {}).get(_EXTENSION)
    return found


def _cores(pod: Mapping[str, Any]) -> float:
    text = ((pod.get("podUsage") or {}).get("resources") or {}).get("cpu")
    return Quantity.parse(text).milli / 1000 if text else 0.0


def print_suppression(document: Mapping[str, Any], console: Console) -> None:
    """Write to how much, since when and why."""
    count = len(document["pods"])
    who = "1 best-effort pod has" if count == 1 else f"{count} best-effort pods have"
    console.print()
    print_text(
        console,
        f"{who} been suppressed to [bold]{_cpus(document['cpus'])}[/bold] since {escape(document['since'])}: "
        f"{escape(document['why'])}",
    )
    used = f"policy {document['policy']}; {_cpus(document['used'])} used on average, reported at {document['reported']}"
    print_text(console, escape(used), indent=2)


def _cpus(cores: float) -> str:
    return f"{cores:g} CPU{'' if cores == 1 else 's'}"
