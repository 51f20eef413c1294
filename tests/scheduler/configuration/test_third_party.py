"""Plugins of other packages in a configuration: where they take part, their arguments, what is said about bad ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import SchedulerConfiguration, parse_configuration, write_configuration
from koordinator.scheduler.configuration.third_party import InstalledPlugins
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.table import BUILT_IN
from tests.scheduler.configuration.offered_plugins import Colour, Limits, PickyArgs

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
OFFERED = "tests.scheduler.configuration.offered_plugins"
Install = Callable[..., InstalledPlugins]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Packages that declare plugins: ``install(Picky="module:Class")``, one distribution a call."""
    entries: list[EntryPoint] = []

    def add(distribution: str = "offers", **plugins: str) -> InstalledPlugins:
        folder = tmp_path / f"{distribution}-1.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        lines = [f"{name} = {value}" for name, value in plugins.items()]
        (folder / "entry_points.txt").write_text("\n".join(["[koordinator.scheduler.plugins]", *lines]))
        entries.extend(Distribution.at(folder).entry_points)
        return InstalledPlugins(lambda: entries)

    return add


def offered(*names: str) -> dict[str, str]:
    return {name: f"{OFFERED}:{name}" for name in names}


def parse(installed: InstalledPlugins, plugins: str, config: str = "") -> SchedulerConfiguration:
    text = f"{HEAD}profiles: [{{plugins: {{{plugins}}}, pluginConfig: [{config}]}}]"
    return parse_configuration(text, "file", installed)


def multi_point(name: str) -> str:
    return f"multiPoint: {{enabled: [{{name: {name}, weight: 4}}]}}"


ZONE = "{name: Picky, args: {zone: a}}"


def test_multi_point_reaches_the_points_that_the_class_implements(install: Install) -> None:
    configuration = parse(install(**offered("Picky")), multi_point("Picky"), ZONE)
    order = configuration.profiles[0].order
    assert [point for point in order.__slots__ if "Picky" in getattr(order, point)] == ["filter"]
    assert order.score[-1] == ("Picky", 4)
    assert configuration.profiles[0].plugins.count("Picky") == 1


def test_pre_score_is_implemented_where_it_is_written(install: Install) -> None:
    order = parse(install(**offered("Easy")), multi_point("Easy")).profiles[0].order
    assert [point for point in order.__slots__ if "Easy" in getattr(order, point)] == ["pre_score"]
    assert order.score[-1] == ("Easy", 4)


def test_a_plugin_implements_the_points_of_its_parts(install: Install) -> None:
    configuration = parse(install(**offered("Composed")), multi_point("Composed"))
    order = configuration.profiles[0].order
    assert [point for point in order.__slots__ if "Composed" in getattr(order, point)] == ["filter", "pre_score"]
    assert order.score[-1] == ("Composed", 4)
    assert configuration.warnings == ()


def test_a_single_point_can_be_chosen(install: Install) -> None:
    order = parse(install(**offered("Picky")), "score: {enabled: [{name: Picky}]}", ZONE).profiles[0].order
    assert order.score[-1] == ("Picky", 1)
    assert "Picky" not in order.filter


def test_a_plugin_of_hooks_alone_takes_part_through_multi_point(install: Install) -> None:
    installed = install(**offered("Beside"))
    configuration = parse(installed, multi_point("Beside"))
    assert configuration.profiles[0].plugins[-1] == "Beside"
    written = parse_configuration(write_configuration(configuration), "written", installed)
    assert written.profiles == configuration.profiles


def test_nothing_is_imported_that_no_profile_names(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, OFFERED)
    parse(install(**offered("Picky", "Easy")), "filter: {disabled: [{name: Picky}]}")
    assert OFFERED not in sys.modules


def test_a_plugin_that_is_there_can_be_disabled_without_a_warning(install: Install) -> None:
    assert parse(install(**offered("Easy")), "score: {disabled: [{name: Easy}]}").warnings == ()


def test_arguments_are_decoded_into_the_type_of_the_plugin(install: Install) -> None:
    args = "{name: Picky, args: {apiVersion: v1, kind: Any, zone: a, colour: blue, limits: {mostPods: 3}}}"
    (profile,) = parse(install(**offered("Picky")), multi_point("Picky"), args).profiles
    assert profile.arguments["Picky"] == PickyArgs("a", Colour.BLUE, Limits(3))


def test_arguments_without_a_type_are_what_was_written(install: Install) -> None:
    installed = install(**offered("Easy"))
    given = parse(installed, multi_point("Easy"), "{name: Easy, args: {kind: Any, a: [1, {b: x}]}}")
    assert given.profiles[0].arguments["Easy"] == {"kind": "Any", "a": [1, {"b": "x"}]}
    assert parse(installed, multi_point("Easy")).profiles[0].arguments["Easy"] == {}


def test_a_written_configuration_keeps_the_arguments(install: Install) -> None:
    installed = install(**offered("Picky", "Easy"))
    config = "{name: Picky, args: {zone: a, colour: blue, names: [x]}}, {name: Easy, args: {b: 1}}"
    before = parse(installed, multi_point("Picky"), config)
    assert parse_configuration(write_configuration(before), "written", installed).profiles == before.profiles


def test_who_can_keep_pods_waiting_should_say_what_frees_them(install: Install) -> None:
    (warning,) = parse(install(**offered("Sleeper")), multi_point("Sleeper")).warnings
    assert "plugin Sleeper (offers 1.2) registers no events by events_to_register" in warning


def test_profiles_get_instances_with_their_arguments(install: Install) -> None:
    configuration = parse(install(**offered("Picky")), multi_point("Picky"), ZONE)
    (profile,) = build_profiles(configuration, BUILT_IN, ClusterView(NodeColumns()))
    assert profile.plugins["Picky"].args == PickyArgs("a")


def test_a_plugin_that_does_not_call_its_base_is_named(install: Install) -> None:
    configuration = parse(install(**offered("Orphan")), multi_point("Orphan"))
    with pytest.raises(ConfigurationError, match=r"args of Orphan: .*offered_plugins.Orphan has to call super\(\)"):
        build_profiles(configuration, BUILT_IN, ClusterView(NodeColumns()))


def test_a_part_that_does_not_call_its_base_is_named(install: Install) -> None:
    configuration = parse(install(**offered("Disowned")), multi_point("Disowned"))
    with pytest.raises(ConfigurationError, match=r"args of Disowned: .*Disowned\.Part has to call super\(\)"):
        build_profiles(configuration, BUILT_IN, ClusterView(NodeColumns()))


def test_a_plugin_that_cannot_be_made_is_named(install: Install) -> None:
    configuration = parse(install(**offered("Falling")), multi_point("Falling"), "{name: Falling, args: {to: moon}}")
    with pytest.raises(
        ConfigurationError, match=r"args of Falling: {'to': 'moon'} .*offered_plugins.Falling fails .*KeyError: 'the m"
    ):
        build_profiles(configuration, BUILT_IN, ClusterView(NodeColumns()))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        (
            "Gone",
            "no_such_module:Gone",
            r"cannot be imported \(ModuleNotFoundError: .*expected is a class that derives",
        ),
        ("Gone", f"{OFFERED}:Gone", r"cannot be imported \(AttributeError: .*'Gone'"),
        ("Gone", "not a reference", r"cannot be imported"),
        (
            "NotAPlugin",
            f"{OFFERED}:NotAPlugin",
            r"is <class .*NotAPlugin'>; expected is a class that derives from koordi",
        ),
        ("Module", OFFERED, r"is <module .*; expected is a class that derives from koordinator.*framework.Plugin"),
        ("Renamed", f"{OFFERED}:Picky", r"is a class with name = 'Picky'; expected is name = 'Renamed'"),
        ("Idle", f"{OFFERED}:Idle", r"takes part at no extension point"),
        ("Half", f"{OFFERED}:Half", r"is a class without filter, reasons"),
        ("Blind", f"{OFFERED}:Blind", r"has score_reads = \('pods',\); expected is a tuple of Aspect"),
        ("Foreign", f"{OFFERED}:Foreign", r"has a part Easy with name = 'Easy'; expected is name = 'Foreign'"),
        ("Halves", f"{OFFERED}:Halves", r"has a part Halves.Part without filter, reasons"),
        ("Mixed", f"{OFFERED}:Mixed", r"has a part <class .*NotAPlugin'>; expected is a class that derives from koord"),
        ("Vague", f"{OFFERED}:Vague", r"has args_type = <class 'dict'>; expected is a msgspec.Struct, a dataclass, or"),
    ],
)
def test_a_broken_plugin_is_refused(install: Install, name: str, value: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error) as refused:
        parse(install(**{name: value}), multi_point(name))
    start = f"file: profiles[0].plugins.multiPoint.enabled[0].name: '{name}' is not usable: "
    assert str(refused.value).startswith(f"{start}entry point {name} = {value} of offers 1.2 ")


def test_the_name_of_a_built_in_plugin_is_taken(install: Install) -> None:
    installed = install(**offered("NodeName"))
    with pytest.raises(ConfigurationError, match=r"of offers 1\.2 clashes with the built-in plugin of that name"):
        parse(installed, multi_point("NodeAffinity"))
    assert parse(installed, "multiPoint: {disabled: [{name: NodeName}]}").warnings == ()


def test_a_name_can_be_offered_only_once(install: Install) -> None:
    install("first", **offered("Easy"))
    with pytest.raises(ConfigurationError, match=r"of first 1\.2 is also declared by second 1\.2"):
        parse(install("second", **offered("Easy")), multi_point("Easy"))


def test_an_unknown_name_shows_what_packages_offer(install: Install) -> None:
    with pytest.raises(ConfigurationError, match=r"'Pick' .*no such plugin; there are SchedulingGates, .*, Picky$"):
        parse(install(**offered("Picky")), multi_point("Pick"))


def test_a_point_that_the_class_does_not_implement_is_refused(install: Install) -> None:
    with pytest.raises(ConfigurationError, match=r"'Picky' .*it does not extend bind, but filter, score"):
        parse(install(**offered("Picky")), "bind: {enabled: [{name: Picky}]}", ZONE)


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ("", r"file: profiles\[0\].pluginConfig\[Picky\].args.zone: None is not usable: it must be given"),
        ("{name: Picky, args: {zone: 3}}", r"pluginConfig\[0\].args.zone: 3 .*Expected `str`"),
        ("{name: Picky, args: {zone: a, hue: b}}", r"args.hue: 'b' .*no such field; there are zone, colour, limits"),
        ("{name: Picky, args: {zone: a, limits: {mostPods: x}}}", r"args.limits.mostPods: 'x' .*Expected `int`"),
        ("{name: Picky, args: {zone: a, colour: green}}", r"args.colour: 'green' .*Invalid enum value"),
        ("{name: Picky, args: {zone: moon}}", r"args: {'zone': 'moon'} .*PickyArgs: there is no air"),
        ("{name: Picky, args: {zone: a}}, {name: Picky}", r"\[1\].name: 'Picky' .*only once"),
    ],
)
def test_bad_arguments_are_named(install: Install, config: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        parse(install(**offered("Picky")), multi_point("Picky"), config)
