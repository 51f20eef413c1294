"""What the scheduler benchmark prints: one JSON document a case, and one table that can be pasted into a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.cases import Case, Requirement
from benchmarks.contenders import Contender
from benchmarks.figures import Figures, Ratios, median, ratios, requirements_met
from benchmarks.placements import Faults

_NONE: Final = "–"
_COLUMNS: Final = {
    Contender.ORIGINAL: "original",
    Contender.OURS: "koordinator",
    Contender.BIND_ONLY: "bind-only",
    Contender.BIND_ONLY_LATER: "… events later",
    Contender.EARLIER: "earlier commit",
}


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What every contender did in every run of a case."""

    case: Case
    runs: Mapping[Contender, Sequence[Figures]]
    faults: Mapping[Contender, Sequence[Faults]]

    @property
    def medians(self) -> dict[Contender, Figures]:
        return {contender: median(runs) for contender, runs in self.runs.items()}

    @property
    def ratios(self) -> Ratios:
        found = self.medians
        others = Contender.ORIGINAL, Contender.BIND_ONLY, Contender.BIND_ONLY_LATER
        return ratios(found.get(Contender.OURS), *(found.get(who) for who in others))

    @property
    def of_earlier(self) -> Ratios | None:
        """Ours ÷ the earlier commit; None where that did not run."""
        found = self.medians
        earlier = found.get(Contender.EARLIER)
        return ratios(found.get(Contender.OURS), earlier, None, None) if earlier is not None else None

    @property
    def ours_is_right(self) -> bool:
        return not any(faults.any for faults in self.faults.get(Contender.OURS, ()))

    def document(self) -> dict[str, Any]:
        """For JSON."""
        decision = requirements_met(self.ratios, self.case.requirement)
        return {
            "benchmark": "scheduler_throughput",
            "case": self.case.name,
            "title": self.case.title,
            **{who.value: asdict(figures) for who, figures in self.medians.items()},
            "runs": {who.value: [run.pods_per_second for run in runs] for who, runs in self.runs.items()},
            "faults": {who.value: [asdict(faults) for faults in found] for who, found in self.faults.items()},
            "ratios": {name: value for name, value in asdict(self.ratios).items() if value is not None},
            "of_earlier": self.of_earlier
            and {name: value for name, value in asdict(self.of_earlier).items() if value is not None},
            "required": {name: value for name, value in asdict(self.case.requirement).items() if value is not None},
            "met": decision,
            "all_met": all(decision.values()) and self.ours_is_right,
        }

    def rows(self) -> list[list[str]]:
        """Lines of the table."""
        found, ratio, required = self.medians, asdict(self.ratios), self.case.requirement
        decision = requirements_met(self.ratios, required)
        lines = []
        for number, (label, show, key, bound) in enumerate(_ROWS):
            figures = [show(found[who]) if who in found else _NONE for who in _COLUMNS]
            value = _NONE if ratio[key] is None else f"{ratio[key]:.3g}"
            met = ("yes" if decision[key] else "**no**") if key in decision else ""
            lines.append(["" if number else self.case.title, label, *figures, value, bound(required), met])
        return lines


def markdown(results: Sequence[CaseResult]) -> str:
    """The table of all cases."""
    head = ["case", "", *_COLUMNS.values(), "ratio", "required", "met"]
    lines = [head, ["---"] * len(head), *(row for result in results for row in result.rows())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _at_most(bound: float | None) -> str:
    return "" if bound is None else f"≤ {bound:.3g}"


def _at_least(bound: float | None) -> str:
    return "" if bound is None else f"≥ {bound:.3g}"


_Row = tuple[str, Callable[[Figures], str], str, Callable[[Requirement], str]]
_ROWS: Final[Sequence[_Row]] = (
    ("pods/s", lambda f: f"{f.pods_per_second:.0f}", "pods_per_second", lambda r: _at_least(r.rate_at_least)),
    ("first to last bound", lambda f: f"{f.seconds_first_to_last:.1f} s", "seconds_first_to_last", lambda _: ""),
    ("CPU per pod", lambda f: f"{f.cpu_ms_per_pod:.2f} ms", "cpu_per_pod", lambda r: _at_most(r.cpu_at_most)),
    (
        "… with start-up",
        lambda f: f"{f.cpu_ms_per_pod_with_start_up:.2f} ms",
        "cpu_per_pod_with_start_up",
        lambda _: "",
    ),
    ("peak memory", lambda f: f"{f.peak_mebibytes:.0f} MiB", "peak_memory", lambda r: _at_most(r.memory_at_most)),
    ("pods/s of bind-only", lambda _: "", "of_binding", lambda r: _at_least(r.of_binding_at_least)),
    ("… events later", lambda _: "", "of_binding_events_later", lambda _: ""),
)
"""Label, what each contender did, the ratio's name, and what is required of it."""
