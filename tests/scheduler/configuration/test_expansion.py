"""Which plugins take part where: the original's own answers, and what must hold for any sets of plugins.

``original_expansions.json`` is what the Go original logs at its start ("the scheduler starts to work with those
plugins") for the files beside it, written by ``record.py``; at score with weights.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.scheduler.configuration import ProfileConfiguration, load_configuration, parse_configuration
from koordinator.scheduler.configuration.document import FIELDS, PluginEntry, Plugins, PluginSet, expand
from koordinator.scheduler.configuration.loading import write_configuration
from koordinator.scheduler.configuration.points import DEFAULT_PLUGINS, KNOWN_PLUGINS, Catalogue

HERE = Path(__file__).parent
CATALOGUE = Catalogue()
ORIGINAL: dict[str, dict[str, list[str]]] = json.loads((HERE / "original_expansions.json").read_text())
FILTERS = sorted(name for name, points in KNOWN_PLUGINS.items() if "filter" in points)
DEFAULT_FILTERS = [name for name, _ in DEFAULT_PLUGINS if "filter" in KNOWN_PLUGINS[name]]


def _at_points(profile: ProfileConfiguration) -> dict[str, list[str]]:
    order = profile.order
    return {
        "preEnqueue": list(order.pre_enqueue),
        "queueSort": list(order.queue_sort),
        "preFilter": list(order.pre_filter),
        "filter": list(order.filter),
        "postFilter": list(order.post_filter),
        "preScore": list(order.pre_score),
        "score": [f"{name}={weight}" for name, weight in order.score],
        "reserve": list(order.reserve),
        "permit": list(order.permit),
        "preBind": list(order.pre_bind),
        "bind": list(order.bind),
        "postBind": list(order.post_bind),
    }


@pytest.mark.parametrize("name", ORIGINAL)
def test_plugins_take_part_where_the_original_puts_them(name: str) -> None:
    assert _at_points(load_configuration(HERE / f"{name}.yaml").profiles[0]) == ORIGINAL[name]


@pytest.mark.parametrize("name", ORIGINAL)
def test_a_written_configuration_is_the_same(name: str) -> None:
    before = load_configuration(HERE / f"{name}.yaml")
    after = parse_configuration(write_configuration(before), "written")
    assert after.profiles == before.profiles
    assert after.document.leader_election == before.document.leader_election
    assert after.warnings == ()


@given(enabled=st.lists(st.sampled_from(FILTERS), unique=True), disabled=st.sets(st.sampled_from([*FILTERS, "*"])))
def test_expansion_keeps_its_promises(enabled: list[str], disabled: set[str]) -> None:
    order = expand(Plugins(filter=_set(enabled, disabled)), "profiles[0]", CATALOGUE).order.filter
    assert len(set(order)) == len(order)
    assert [name for name in order if name in enabled and name in DEFAULT_FILTERS and name not in disabled] == [
        name for name in enabled if name in DEFAULT_FILTERS and name not in disabled
    ]
    if "*" in disabled:
        assert list(order) == enabled
    else:
        assert set(order) == set(enabled) | {name for name in DEFAULT_FILTERS if name not in disabled}


@given(
    enabled=st.lists(st.sampled_from(FILTERS), unique=True),
    disabled=st.sets(st.sampled_from([*FILTERS, "DefaultBinder"])),
)
def test_multi_point_reaches_every_point_that_a_plugin_implements(enabled: list[str], disabled: set[str]) -> None:
    given_plugins = Plugins(
        multi_point=_set(enabled, disabled), bind=PluginSet(enabled=[PluginEntry(name="DefaultBinder")])
    )
    points = expand(given_plugins, "profiles[0]", CATALOGUE).points
    for name in enabled:
        assert {point for point in FIELDS if name in points[point]} == KNOWN_PLUGINS[name]
    for name in disabled - set(enabled) - {"DefaultBinder"}:
        assert not any(name in names for names in points.values())


def _set(enabled: list[str], disabled: set[str]) -> PluginSet:
    return PluginSet(
        enabled=[PluginEntry(name=name) for name in enabled],
        disabled=[PluginEntry(name=name) for name in sorted(disabled)],
    )
