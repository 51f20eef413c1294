"""docs/features.md: which feature is in which program, how mature it is, and what each feature gate does.

``python -m tests.docs.features_page`` writes the page from docs/features.toml and the programs' own tables of gates.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from koordinator.base.feature_gates import Feature, FeatureGates, Stage
from koordinator.descheduler import features as descheduler
from koordinator.koordlet import features as koordlet
from koordinator.manager import features as manager
from koordinator.scheduler import features as scheduler
from tests.docs.generated_pages import ROOT, table, write_or_print

DATA: Final = ROOT / "docs/features.toml"
PAGE: Final = ROOT / "docs/features.md"
PROGRAMS: Final = (
    "koord-scheduler",
    "koord-manager",
    "koordlet",
    "koord-descheduler",
    "koord-device-daemon",
    "koord-runtime-proxy",
)
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
    table: FeatureGates, texts: Mapping[str, str], without_effect: Iterable[str] = ()
) -> Mapping[str, tuple[Feature, str]]:
    working = {
        name: table.feature(name)
        for name in table
        if not table.feature(name).without_effect and name not in without_effect
    }
    if different := set(working) ^ set(texts):
        raise UnknownGateError(f"gates without a description, or descriptions without a gate: {sorted(different)}")
    return {name: (feature, texts[name]) for name, feature in sorted(working.items())}


def page() -> str:
    """The whole page, in Markdown."""
    features: Sequence[Mapping[str, Any]] = tomllib.loads(DATA.read_text())["feature"]
    shown = [program for program in PROGRAMS if any(program in feature for feature in features)]
    matrix = [
        [f"[{feature['name']}]({feature['page']})", *(_cell(program, feature.get(program)) for program in shown)]
        for feature in features
    ]
    sections = [_INTRODUCTION, f"## Features by program\n\n{table(['feature', *shown], matrix)}"]
    head = ["gate", "stage", "default", "when it is on"]
    for program, known in gates().items():
        rows = [[f"`{name}`", *_maturity(feature), text] for name, (feature, text) in known.items()]
        sections.append(f"## Feature gates of {program}\n\n{table(head, rows)}")
    return "\n".join(sections)


def _cell(program: str, gate: str | None) -> str:
    if gate is None:
        return ""
    if not gate:
        return _STAGES[Stage.GA]
    if gate not in gates()[program]:
        raise UnknownGateError(f"{program} has no gate {gate}")
    stage, default = _maturity(gates()[program][gate][0])
    return f"{stage}, {default}: `{gate}`"


def _maturity(feature: Feature) -> tuple[str, str]:
    return _STAGES[feature.stage], "on" if feature.default else "off"


def main(arguments: Sequence[str]) -> None:
    """Write the page, or print it with ``--print``."""
    write_or_print({PAGE: page()}, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
