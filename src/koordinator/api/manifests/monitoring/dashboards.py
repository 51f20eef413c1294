"""What a dashboard and its panels say, and the document that Grafana imports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

COLUMNS: Final = 24
_HEIGHTS: Final = {"stat": 4, "timeseries": 8, "table": 8}
_PER_ROW: Final = {"stat": 4, "timeseries": 2, "table": 2}
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA: Final = 38
"""Of Grafana 9 and later, which import older ones as well."""


@dataclass(frozen=True, slots=True)
class Query:
    """``legend`` is Grafana's format of a series' name, such as ``{{node}}``."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """``conclusion`` says what a reader is to conclude. ``needs`` says what a cluster must have so that there are data,
    where ``koord up`` on one machine has none."""

    title: str
    conclusion: str
    unit: str
    queries: Sequence[Query]
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    needs: str = ""
    is_stacked: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """``name`` is that of its file. ``variables`` are those that its queries name: a name and the query of its values,
    or the text that it begins with where it is typed in."""

    name: str
    title: str
    question: str
    panels: Sequence[Panel]
    variables: Mapping[str, str]
    typed: Mapping[str, str]


def one(expression: str, legend: str = "") -> tuple[Query, ...]:
    return (Query(expression, legend),)


def quantiles(histogram: str, selector: str, by: str = "", of: Sequence[float] = (0.5, 0.9, 0.99)) -> tuple[Query, ...]:
    """Quantiles of a histogram, also by a label."""
    grouping, shown = (f"le, {by}", f" {{{{{by}}}}}") if by else ("le", "")
    rate = f"sum by ({grouping}) (rate({histogram}_bucket{selector}[$__rate_interval]))"
    return tuple(Query(f"histogram_quantile({q}, {rate})", f"p{q * 100:.0f}{shown}") for q in of)


def mean(histogram: str, selector: str, by: str) -> tuple[Query, ...]:
    """The mean of a histogram by labels."""
    total, count = (
        f"sum by ({by}) (rate({histogram}_{each}{selector}[$__rate_interval]))" for each in ("sum", "count")
    )
    return one(f"{total} / {count}", " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(",")))


def grafana_text(dashboard: Dashboard) -> str:
    """The file that Grafana imports."""
    document = {
        "uid": f"koordinator-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.question,
        "tags": ["koordinator"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "templating": {"list": [_source_variable(), *_variables(dashboard)]},
        "panels": _laid_out(dashboard.panels),
    }
    return json.dumps(document, indent=1) + "\n"


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variables(dashboard: Dashboard) -> list[dict[str, Any]]:
    chosen = [
        {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _SOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "includeAll": True,
            "multi": True,
            "current": {"text": ["All"], "value": ["$__all"]},
            "refresh": 2,
            "sort": 1,
        }
        for name, query in dashboard.variables.items()
    ]
    typed = [
        {"name": name, "label": name.capitalize(), "type": "textbox", "query": text, "current": {"value": text}}
        for name, text in dashboard.typed.items()
    ]
    return [*chosen, *typed]


def _laid_out(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """In the order of the table, as many beside each other as fit; another kind begins another row."""
    documents: list[dict[str, Any]] = []
    x = y = height = 0
    for number, panel in enumerate(panels, start=1):
        width = COLUMNS // _PER_ROW[panel.kind]
        if x + width > COLUMNS or (height and height != _HEIGHTS[panel.kind]):
            x, y = 0, y + height
        height = _HEIGHTS[panel.kind]
        documents.append(_panel(number, panel, {"x": x, "y": y, "w": width, "h": height}))
        x += width
    return documents


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.conclusion,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, **_drawing(panel)}, "overrides": []},
        "targets": [_target(chr(ord("A") + index), panel, query) for index, query in enumerate(panel.queries)],
    }
    if panel.kind == "stat":
        document["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}}
    return document


def _drawing(panel: Panel) -> dict[str, Any]:
    if panel.kind != "timeseries":
        return {}
    stacking = {"mode": "normal", "group": "A"} if panel.is_stacked else {"mode": "none", "group": "A"}
    return {"custom": {"fillOpacity": 25 if panel.is_stacked else 0, "showPoints": "never", "stacking": stacking}}


def _target(letter: str, panel: Panel, query: Query) -> dict[str, Any]:
    target: dict[str, Any] = {
        "refId": letter,
        "datasource": _SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
    }
    return target | ({"format": "table", "instant": True} if panel.kind == "table" else {"range": True})
