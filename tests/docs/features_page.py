"""docs/features.md: which feature is in which program, how mature it is, and what each feature gate does.

``python -m tests.docs.features_page`` writes the page from docs/features.toml and the programs' own tables of gates.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final

from koordinator.base.feature_gates import Feature, FeatureGates, Stage
from koordinator.descheduler import features as descheduler
from koordinator.koordlet import features as koordlet
from koordinator.manager import features as manager
from koordinator.scheduler import features as scheduler
from tests.docs.generated_pages import ROOT, table, write_or_print

DATA: Final = ROOT / "docs/features.toml"
PAGE: Final = ROOT / "docs/features.md"
PROGRAMS: Final = {
    "koord-scheduler": "scheduler",
    "koord-manager": "manager",
    "koordlet": "koordlet",
    "koord-descheduler": "descheduler",
    "koord-device-daemon": "device daemon",
    "koord-runtime-proxy": "runtime proxy",
}
"""What they are called at the top of a column."""
_STAGES: Final = {
    Stage.GA: "stable",
    Stage.BETA: "beta",
    Stage.ALPHA: "alpha",
    Stage.DEPRECATED: "deprecated",
}
_INTRODUCTION: Final = """\
# Features and feature gates

Which program has which feature, how mature it is there, and by which gate it is switched. The stages are those of
Kubernetes, and the gates have the stages and defaults of the Go original:

| stage | means |
|---|---|
| stable | there without a gate; what it has to be told is on its page |
| beta | well tested; it stays, and details may change with a note in the CHANGELOG |
| alpha | it works as its page says; flags and fields may change from release to release |

Gates are switched by `--feature-gates=NAME=true,NAME=false` of the program, by `scheduler.featureGates`,
`featureGates`, `descheduler.featureGates` and `koordlet.features` of the [chart](helm.md#values), and those of koordlet
also [while it runs](koordlet.md#change-it-while-it-runs). The DaemonSet of `koord manifests` and of the chart switches
some of koordlet's on that are off by default. What koordlet does to nodes needs the
[NodeSLO](koordlet-enforcement.md), too.

`python -m tests.docs.features_page` writes this page from `features.toml` and the programs' own tables of gates.
"""


class UnknownGateError(KeyError):
    """features.toml names a gate that its program does not have, or leaves one out."""


@cache
def gates() -> Mapping[str, Mapping[str, tuple[Feature, str]]]:
    """The gates that have an effect, by program and name, each with what it does. Raises UnknownGateError where
    features.toml describes others."""
    texts = tomllib.loads(DATA.read_text())["gates"]
    return {
        "koord-scheduler": _described(scheduler.make_features(), scheduler.WORKING),
        "koord-manager": _described(manager.make_features(), texts["koord-manager"]),
        "koordlet": _described(koordlet.make_features(), texts["koordlet"], koordlet.WITHOUT_EFFECT),
        "koord-descheduler": _described(descheduler.make_features(), descheduler.WORKING),
    }


def _described(
    accepted: FeatureGates, texts: Mapping[str, str], without_effect: Iterable[str] = ()
) -> Mapping[str, tuple[Feature, str]]:
    working = {
        name: accepted.feature(name)
        for name in accepted
        if not accepted.feature(name).without_effect and name not in without_effect
    }
    if different := set(working) ^ set(texts):
        raise UnknownGateError(f"gates without a description, or descriptions without a gate: {sorted(different)}")
    return {name: (feature, texts[name]) for name, feature in sorted(working.items())}


def page() -> str:
    """The whole page, in Markdown."""
    features: Sequence[Mapping[str, str]] = tomllib.loads(DATA.read_text())["feature"]
    head = ["feature", *PROGRAMS.values(), "gate"]
    sections = [_INTRODUCTION, f"## Features by program\n\n{table(head, map(_row, features))}"]
    head = ["gate", "stage", "default", "when it is on"]
    for program, known in gates().items():
        rows = [[f"`{name}`", *_maturity(feature), text] for name, (feature, text) in known.items()]
        sections.append(f"## Feature gates of {program}\n\n{table(head, rows)}")
    return "\n".join(sections)


def _row(feature: Mapping[str, str]) -> Sequence[str]:
    named = {program: feature[program] for program in PROGRAMS if program in feature}
    cells = [_cell(program, named[program]) if program in named else "" for program in PROGRAMS]
    switches = [f"`{gate}`" for gate in dict.fromkeys(named.values()) if gate]
    return [f"[{feature['name']}]({feature['page']})", *cells, ", ".join(switches)]


def _cell(program: str, gate: str) -> str:
    if not gate:
        return _STAGES[Stage.GA]
    if gate not in gates()[program]:
        raise UnknownGateError(f"{program} has no gate {gate}")
    return ", ".join(_maturity(gates()[program][gate][0]))


def _maturity(feature: Feature) -> tuple[str, str]:
    return _STAGES[feature.stage], "on" if feature.default else "off"


def main(arguments: Sequence[str]) -> None:
    """Write the page, or print it with ``--print``."""
    write_or_print({PAGE: page()}, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
