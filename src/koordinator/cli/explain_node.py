"""The explanation of a node on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from rich.console import Console
from rich.table import Table

from koordinator.api.annotations import KOORDLET_CONFIGURATION
from koordinator.api.codec import convert, decode_or
from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.node_explanation import (
    Adaptation,
    AgentConfiguration,
    Amount,
    NodeExplanation,
    OvercommitExplanation,
    PluginFacts,
    Suppression,
)
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import EXTENDED_MEMORIES, FREE_CPU, FREE_MEMORY
from koordinator.cli.explain_object import ObjectReader
from koordinator.cli.explain_terminal import escape, print_table, print_text

# What a node offers of batch and mid resources, as sums on a terminal.


_MEMORIES: Final = frozenset(EXTENDED_MEMORIES)
_FREE: Final = frozenset({FREE_CPU, FREE_MEMORY})
_MEBI: Final = 1 << 20
Parts = Literal["terms", "adjustments"]


def print_overcommit(overcommit: OvercommitExplanation, console: Console) -> None:
    """Write each sum, its terms one below the other."""
    if overcommit.error is not None:
        console.print()
        print_text(console, f"Why batch and mid capacity is what it is: {escape(overcommit.error)}")
        return
    _print_abnormal(overcommit, console)
    if overcommit.adaptation is not None:
        _print_adaptation(overcommit.adaptation, console)
    for text in overcommit.problems:
        print_text(console, f"not usable: {escape(text)}")
    amounts = overcommit.amounts
    given = [each for each in amounts if not each.reset]
    if given:
        reported = next((each.metric_time for each in given if each.metric_time), "")
        at = f", from the report of {escape(reported)}" if reported else ""
        free = [each for each in given if each.resource in _FREE]
        others = [each for each in given if each.resource not in _FREE]
        for what, shown in (("batch and mid", others), ("free", free)):
            if shown:
                print_table(console, f"Why {what} capacity is what it is{at}", _sums(shown))
    for each in amounts:
        if each.reset:
            print_text(console, escape(each.sentence), indent=2)
    zones = overcommit.zones
    for name in dict.fromkeys(each.zone for each in zones):
        print_table(console, f"Zone {escape(name or '')}", _sums([each for each in zones if each.zone == name]))


def _sums(given: Sequence[Amount]) -> Table:
    """A column for each resource: terms, what they come to, what that becomes, and what it all was made from."""
    table = Table("", *(escape(each.resource.rpartition("/")[2]) for each in given))
    for name in _names(given, "terms"):
        table.add_row(escape(_words(name)), *(_part(each, "terms", name) for each in given))
    if any(each.cap is not None for each in given):
        table.add_row("at most", *(_shown(each, each.cap) if each.cap is not None else "" for each in given))
    table.add_row("= allocatable", *(_shown(each, each.value) for each in given), style="bold")
    for name in _names(given, "adjustments"):
        table.add_row(escape(_words(name)), *(_part(each, "adjustments", name) for each in given))
    table.add_row("policy", *(escape(each.policy or "") for each in given))
    for name in dict.fromkeys(name for each in given for name in each.inputs):
        inputs = [_input(each, name) for each in given]
        if any(inputs):
            cells = ("" if found is None else _shown(each, found) for each, found in zip(given, inputs, strict=True))
            table.add_row(f"({escape(_words(name))})", *cells)
    return table


def _input(amount: Amount, name: str) -> int | None:
    """What goes into the terms; None for what is one of them, which stands above already."""
    if any(part.name == name for part in amount.terms):
        return None
    return amount.inputs.get(name)


def _names(given: Sequence[Amount], kind: Parts) -> list[str]:
    return list(dict.fromkeys(part.name for each in given for part in getattr(each, kind)))


def _print_abnormal(overcommit: OvercommitExplanation, console: Console) -> None:
    for number, found in enumerate(overcommit.abnormal):
        since = f" since {escape(overcommit.abnormal_since)}" if not number and overcommit.abnormal_since else ""
        if not number:
            console.print()
        print_text(console, f"abnormal{since}: {escape(found.message)} ({escape(found.reason)})")
    if overcommit.sound_since:
        text = (
            f"reports are sound since {escape(overcommit.sound_since)}: the node is normal again when that has lasted"
        )
        print_text(console, text, indent=2)


def _print_adaptation(adaptation: Adaptation, console: Console) -> None:
    """What is lowered, since when and why, and what brings it back."""
    why, since = escape(adaptation.reason), escape(adaptation.since)
    console.print()
    if not adaptation.level:
        print_text(console, f"co-location is as configured again since {since}; it had been taken back for: {why}")
        return
    where = f"step {adaptation.level} of {adaptation.steps}"
    print_text(console, f"co-location is taken back to [bold]{where}[/bold] since {since}: {why}")
    changed = [each for each in adaptation.lowered if each.now != each.configured]
    if changed:
        values = ", ".join(f"{each.name} {each.now} (configured: {each.configured})" for each in changed)
        print_text(console, escape(values), indent=2)
    if adaptation.back_at:
        text = f"one step is taken back at {adaptation.back_at}, unless a report says anything of the kind before"
        print_text(console, escape(text), indent=2)


def _part(amount: Amount, kind: Parts, name: str) -> str:
    found = next((part.amount for part in getattr(amount, kind) if part.name == name), None)
    return "" if found is None else _shown(amount, found, signed=True)


def _shown(amount: Amount, value: int, *, signed: bool = False) -> str:
    shown, unit = (value / _MEBI, "Mi") if amount.resource in _MEMORIES else (value, "m")
    return f"{shown:+,.0f}{unit}" if signed else f"{shown:,.0f}{unit}"


def _words(name: str) -> str:
    """``systemUsage`` as words."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)


def print_node(document: NodeExplanation, console: Console) -> None:
    """Write it, the result first."""
    pods = document.pods
    print_text(console, f"[bold]{escape(document.node)}[/bold]  {_result(document)}")
    if document.cordoned:
        print_text(console, "cordoned (spec.unschedulable): takes only pods that tolerate that", indent=2)
    for taint in document.taints:
        print_text(console, f"taint {escape(taint)}", indent=2)
    for condition in document.conditions:
        print_text(console, f"condition {escape(condition)}", indent=2)
    if pods is not None:
        print_text(console, f"{pods.running} of at most {pods.limit} pods", indent=2)
    if nominated := document.nominated_pods:
        print_text(console, f"nominated: {escape(', '.join(nominated))}", indent=2)
    if reason := document.not_up_to_date:
        print_text(console, f"what follows may be old: {escape(reason)}", indent=2)
    _print_resources(document, console)
    for plugin, said in document.plugins.items():
        facts = convert(said, PluginFacts)
        for fault in facts.faults:
            _print_apart(console, f"{escape(plugin)}: NodeMetric {escape(document.node)}: {escape(fault)}")
        for each in facts.closed_by:
            _print_apart(console, f"{escape(plugin)}: closed by pod {escape(each.pod)}: {escape(each.reason)}")
        if facts.usage is not None:
            _print_load(plugin, facts, console)
        elif facts.devices is not None:
            _print_devices(facts, console)
        elif facts.reported is False:
            _print_apart(console, f"{escape(plugin)}: the node has not reported its usage")
        elif facts.error:
            _print_apart(console, f"{escape(plugin)} cannot be queried: {escape(facts.error)}")
    _print_rejected(document, console)
    if document.overcommit is not None:
        print_overcommit(document.overcommit, console)


def _print_apart(console: Console, markup: str) -> None:
    console.print()
    print_text(console, markup)


def _result(document: NodeExplanation) -> str:
    evaluated, lately = document.evaluated, document.placed_lately
    came = f"; {lately} came here lately" if lately else ""
    if not evaluated.pods:
        return f"no pod waits or was placed elsewhere lately that could be evaluated{came}"
    took = evaluated.would_take
    if evaluated.pods == 1:
        return f"would {'' if took else 'not '}take the one pod that waits or was placed elsewhere lately{came}"
    count = "none" if not took else "all" if took == evaluated.pods else str(took)
    return f"would take {count} of the {evaluated.pods} pods that wait or were placed elsewhere lately{came}"


def _print_resources(document: NodeExplanation, console: Console) -> None:
    table = Table("resource", "allocatable", "requested", "free", "share")
    for resource in document.resources:
        percent = resource.requested_percent
        table.add_row(
            escape(resource.name),
            resource.allocatable,
            resource.requested,
            resource.free,
            "" if percent is None else f"{percent:g} %",
        )
    print_table(console, "", table)


def _print_load(plugin: str, facts: PluginFacts, console: Console) -> None:
    age = f", reported at {facts.reported_at[:19]}Z" if facts.reported_at else ""
    title = f"Load, as {plugin} sees it{age}{': too old to be believed' if facts.expired else ''}"
    table = Table("resource", "measured", "not measured yet", "expected", "share", "threshold")
    for usage in facts.usage or ():
        limits = [f"{usage.threshold} %" if usage.threshold else "none"]
        others = {"prod": usage.prod_threshold, "aggregated": usage.aggregated_threshold}
        limits += [f"{name} {bound} %" for name, bound in others.items() if bound]
        table.add_row(
            usage.name,
            usage.measured,
            usage.not_measured_yet,
            usage.expected,
            f"{usage.expected_percent:g} %",
            ", ".join(limits),
        )
    print_table(console, title, table)


def _print_devices(facts: PluginFacts, console: Console) -> None:
    table = Table("device", "free")
    for device in facts.devices or ():
        free = [f"{device.free[name]} of {whole} {name.rpartition('/')[2]}" for name, whole in device.total.items()]
        table.add_row(f"{device.type} {device.minor}", escape(", ".join(free)))
    print_table(console, "Devices that work", table)
    if fault := facts.fault:
        print_text(console, escape(fault), indent=2)


def _print_rejected(document: NodeExplanation, console: Console) -> None:
    if not document.rejected_by:
        return
    table = Table("pods", "kept off by", "because", "for example")
    for entry in document.rejected_by:
        table.add_row(
            str(entry.pods),
            escape(entry.plugin),
            escape("\n".join(entry.details or entry.reasons)),
            escape(", ".join(entry.examples)),
        )
    print_table(console, "Pods that it does not take, as of now", table)


# The best-effort pods of the node that are held down, as koordlet has written it into the NodeMetric.


async def _reported(reader: ObjectReader, node: str) -> dict[str, Any]:
    return {"suppression": suppression_of(await reader.node_metric(node))}


async def _configured(reader: ObjectReader, node: str) -> dict[str, Any]:
    return {"koordlet_configuration": configuration_of(await reader.node_topology(node))}


REPORTS: Final = {
    "what koordlet has reported of the node": _reported,
    "which configuration koordlet goes by": _configured,
}
"""What koordlet writes of its node: the fields of its explanation."""


def suppression_of(metric: Mapping[str, Any] | None) -> Suppression | None:
    """The last report about best-effort pods, and their usage; None where they are not suppressed."""
    status = (metric or {}).get("status") or {}
    found = [(pod, said) for pod in status.get("podsMetric") or () if (said := suppression_of_pod(pod)) is not None]
    if not found:
        return None
    return convert(
        {
            **found[0][1],
            "reported": status.get("updateTime") or "",
            "pods": [f"{pod.get('namespace', '')}/{pod.get('name', '')}" for pod, _ in found],
            "used": round(sum(_cores(pod) for pod, _ in found), 2),
        },
        Suppression,
    )


def suppression_of_pod(metric: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What koordlet has written beside the usage of one pod."""
    found: Mapping[str, Any] | None = ((metric.get("extensions") or {}).get(EXTENSIONS_MEMBER) or {}).get("suppression")
    return found


def _cores(pod: Mapping[str, Any]) -> float:
    text = ((pod.get("podUsage") or {}).get("resources") or {}).get("cpu")
    return Quantity.parse(text).milli / 1000 if text else 0.0


def print_suppression(document: Suppression, console: Console) -> None:
    """Write to how much, since when and why."""
    count = len(document.pods)
    who = "1 best-effort pod has" if count == 1 else f"{count} best-effort pods have"
    console.print()
    print_text(
        console,
        f"{who} been suppressed to [bold]{_cpus(document.cpus)}[/bold] since {escape(document.since)}: "
        f"{escape(document.why)}",
    )
    used = f"policy {document.policy}; {_cpus(document.used)} used on average, reported at {document.reported}"
    print_text(console, escape(used), indent=2)


def _cpus(cores: float) -> str:
    return f"{cores:g} CPU{'' if cores == 1 else 's'}"


# The ConfigMap of koordlet, as it has written it into the NodeResourceTopology.


def configuration_of(topology: Mapping[str, Any] | None) -> AgentConfiguration | None:
    """None where koordlet goes by its command line, as far as is known."""
    text = ((topology or {}).get("metadata", {}).get("annotations") or {}).get(KOORDLET_CONFIGURATION)
    found = decode_or(text, AgentConfiguration, None)
    return found if found is not None and found.since else None


def print_configuration(document: AgentConfiguration, console: Console) -> None:
    """Write which is in force, and what is wrong with a newer one."""
    console.print()
    version = document.resource_version
    what = f"its ConfigMap of resourceVersion {version}" if version else "its command line"
    print_text(console, escape(f"koordlet goes by {what}, since {document.since}"))
    if document.refused:
        print_text(console, escape(f"a newer ConfigMap was refused: {document.refused}"), indent=2)
