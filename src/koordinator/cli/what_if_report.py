"""The outcome of a what-if on a terminal, what matters most first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from koordinator.api.usable_amounts import limit_text
from koordinator.cli.explain_terminal import drawable, escape, print_list, print_table, print_text
from koordinator.scheduler.explain.explainer import amount_text

_ROWS: Final = 15
_NAMES: Final = 4
_SHOWN_FIRST: Final = ("cpu", "memory")
Document = Mapping[str, Any]


def print_outcome(document: Document, console: Console) -> None:
    """Write it."""
    if "saved" in document:
        _print_saved(document, console)
        return
    print_text(console, f"[bold]What if {escape('; '.join(document['changes']))}?[/bold]")
    print_text(console, escape(conclusion_of(document)), indent=2)
    print_list(console, "What could not be done", document["blocked"])
    if "fit" in document:
        _print_fit(document["fit"], console)
    else:
        _print_placed(document["placed"], console)
    _print_preempted(document["departed"], console)
    _print_lost(document["departed"], console)
    _print_pending(document["pending"], console)
    _print_reservations(document["reservations"], console)
    if "colocation" in document:
        _print_colocation(document["colocation"], console)
    else:
        _print_nodes(document, console)
    _print_quotas(document["quotas"], console)
    if "replay" in document:
        _print_replay(document["replay"], console)
    _print_remarks(document, console)


def _print_saved(document: Document, console: Console) -> None:
    objects = document["objects"]
    counts = f"{_count(objects.get('nodes', 0), 'node')}, {_count(objects.get('pods', 0), 'pod')}"
    total = _count(sum(objects.values()), "object")
    print_text(console, escape(f"{document['saved']}: {counts}, {total} in all, of {document['cluster']}"))
    print_list(console, "Not in it", [f"{kind}: {why}" for kind, why in document["missing"].items()])


def conclusion_of(document: Document) -> str:
    """The outcome in one sentence."""
    placed, departed = document["placed"], document["departed"]
    pending = sum(len(group["pods"]) for group in document["pending"])
    moved = sum("replaces" in each for each in placed)
    parts = []
    if "fit" not in document and placed:
        new = len(placed) - moved
        found = [f"{_count(new, 'pod')} would get a node"] if new else []
        parts += [*found, *([f"{_count(moved, 'pod')} would move to another node"] if moved else [])]
    preempted = sum(each["cause"] == "preempted" for each in departed)
    if preempted:
        parts.append(f"{_count(preempted, 'pod')} would be evicted for others")
    gone = sum("replacement" not in each for each in departed)
    if gone:
        parts.append(f"{_count(gone, 'pod')} would be gone")
    if pending:
        parts.append(f"{_count(pending, 'pod')} would stay pending")
    if document["blocked"]:
        parts.append(f"{_count(len(document['blocked']), 'pod')} could not be evicted")
    if "fit" in document:
        fit = document["fit"]
        parts.insert(0, f"{'At least ' if fit['atLeast'] else ''}{_count(fit['replicas'], 'more pod')} would fit")
    return f"{', '.join(parts)}." if parts else "No pod would move, none would get a node, none would have to leave."


def _print_fit(fit: Document, console: Console) -> None:
    if nodes := fit["nodes"]:
        table = Table("node", "pods")
        for node, count in sorted(nodes.items(), key=lambda item: (-item[1], item[0]))[:_ROWS]:
            table.add_row(escape(node), str(count))
        print_table(console, f"Where they would go: {_count(len(nodes), 'node')}", table)
        _print_more(len(nodes), console)
    if fit.get("stoppedBy"):
        console.print()
        print_text(console, escape(f"What stops the next one: {fit['stoppedBy']}"))
    print_list(console, "What would help", fit.get("advice", ()))


def _print_placed(placed: Sequence[Document], console: Console) -> None:
    if not placed:
        return
    groups: dict[tuple[str, str], list[Document]] = {}
    for each in placed:
        origin = each["replaces"]["node"] if "replaces" in each else ""
        groups.setdefault((each["workload"], origin), []).append(each)
    table = Table("workload", "pods", "from", "to")
    for (workload, origin), pods in list(groups.items())[:_ROWS]:
        table.add_row(escape(workload), str(len(pods)), escape(origin or "new"), escape(_nodes(pods)))
    print_table(console, "Where pods would go", table)
    _print_more(len(groups), console)
    tied = sum(each.get("nodesWithTheSameScore", 0) > 1 for each in placed)
    if tied:
        which = "This pod has" if len(placed) == tied == 1 else f"{tied} of these pods have"
        print_text(
            console,
            f"{which} several nodes with the same, highest score; the scheduler chooses among them at random, so that "
            "the node may be another one.",
        )


def _nodes(pods: Iterable[Document]) -> str:
    counts = Counter(each["node"] for each in pods)
    shown = [f"{node} ({count})" if count > 1 else node for node, count in counts.most_common(_NAMES)]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _print_preempted(departed: Sequence[Document], console: Console) -> None:
    rows = [each for each in departed if each["cause"] in ("preempted", "evicted")]
    if not rows:
        return
    table = Table("pod", "leaves", "for whom, or why", "and goes to")
    for each in rows[:_ROWS]:
        table.add_row(
            escape(each["pod"]),
            escape(each["node"]),
            escape(each.get("by") or each.get("message", "")),
            escape(_destination(each)),
        )
    print_table(console, "Who would be evicted", table)
    _print_more(len(rows), console)


def _destination(departure: Document) -> str:
    if (replacement := departure.get("replacement")) is not None:
        if replacement.get("leaves"):
            return f"{replacement['node'] or 'nowhere'}, and leaves again"
        return replacement["node"] or "nowhere: pending"
    return str(departure.get("notReplaced", ""))


def _print_lost(departed: Sequence[Document], console: Console) -> None:
    """Those that others than the user of the command make leave are shown by ``_print_preempted``."""
    rows = [
        f"{each['pod']} on {each['node']}: {each['notReplaced']}"
        for each in departed
        if each["cause"] in ("drained", "node removed") and "notReplaced" in each
    ]
    print_list(console, "Who would be gone for good", _first(rows))


def _print_pending(pending: Sequence[Document], console: Console) -> None:
    if not pending:
        return
    table = Table("workload", "pods", "why")
    for group in pending[:_ROWS]:
        table.add_row(escape(group["workload"]), str(len(group["pods"])), escape(_why(group["message"])))
    print_table(console, "Who would stay pending", table)
    _print_more(len(pending), console)
    advice = dict.fromkeys(line for group in pending for line in group["advice"])
    print_list(console, "What would help", list(advice)[:_ROWS])


def _why(message: str) -> str:
    """Without what follows of preemption, which would have been done had it helped."""
    return message.partition(" preemption:")[0]


def _print_reservations(reservations: Sequence[Document], console: Console) -> None:
    lines = [
        f"{each['reservation']} on {each['node']}" if each["node"] else f"{each['reservation']}: {each['message']}"
        for each in reservations
    ]
    print_list(console, "Reservations", lines)


def _print_nodes(document: Document, console: Console) -> None:
    nodes = document["nodes"]
    if nodes:
        changed = dict.fromkeys(
            name
            for node in nodes
            for name, each in node["resources"].items()
            # Of a node that is added much is new of which nothing is requested.
            if name != "pods" and (each["before"]["percent"] or each["after"]["percent"])
        )
        names = [name for name in _SHOWN_FIRST if name in changed]
        names += [name for name in changed if name not in names][: 4 - len(names)]
        table = Table("node", "pods", *map(_short, names))
        for node in sorted(nodes, key=_largest_change, reverse=True)[:_ROWS]:
            cells = [_pods(node["resources"].get("pods")), *(_share(node["resources"].get(name)) for name in names)]
            state = "" if node["state"] == "changed" else f" ({node['state']})"
            table.add_row(escape(node["node"] + state), *(escape(drawable(console, cell)) for cell in cells))
        print_table(console, "Requested of allocatable, before and after", table)
        _print_more(len(nodes), console)
    total = document["cluster"]
    shares = [
        f"{_short(name)} {_share(each)}"
        for name, each in total["resources"].items()
        if name != "pods" and (each["before"]["percent"] or each["after"]["percent"])
    ]
    before, after = total["nodes"]
    count = _count(before, "node") if before == after else f"{before} → {_count(after, 'node')}"
    console.print()
    text = f"The whole cluster ({count}): {', '.join(shares) or 'nothing is requested'}"
    print_text(console, escape(drawable(console, text)))


def _print_colocation(colocation: Document, console: Console) -> None:
    nodes = colocation["nodes"]
    total = {name: each for name, each in colocation["total"].items() if each["before"] or each["after"]}
    if total:
        table = Table("node", *map(_short, total))
        rows = sorted(nodes, key=_capacity_change, reverse=True)[:_ROWS]
        for node in rows:
            cells = [_capacity(name, node["amounts"].get(name)) for name in total]
            table.add_row(escape(node["node"]), *(drawable(console, cell) for cell in cells))
        table.add_section()
        cells = [_capacity(name, amounts) for name, amounts in total.items()]
        table.add_row("all nodes", *(drawable(console, cell) for cell in cells))
        print_table(console, "Batch, mid and free capacity, before and after", table)
        _print_more(len(nodes), console)
    without = [f"{node['node']}: {node['noCapacity']}" for node in nodes if "noCapacity" in node]
    print_list(console, "Nodes without any", _first(without))
    overused = [
        f"{each['node']}: {each['requested']} of {each['resource']} requested, {each['allocatable']} there"
        for each in colocation["overused"]
    ]
    title = "Where pods would request more than there is: the scheduler evicts none, koordlet suppresses them"
    print_list(console, title, _first(overused))


def _capacity(name: str, amounts: Document | None) -> str:
    if amounts is None:
        return "–"
    before, after = (amount_text(name, amounts[when]) for when in ("before", "after"))
    return after if before == after else f"{before} → {after}"


def _capacity_change(node: Document) -> float:
    return max(
        (abs(each["after"] - each["before"]) / max(each["before"], 1) for each in node["amounts"].values()), default=0.0
    )


def _print_replay(found: Document, console: Console) -> None:
    pending, nodes = found["pending"], found["nodesInUse"]
    console.print()
    print_text(
        console,
        f"All {_count(found['pods'], 'pod')} placed anew, in the order of their creation, with one configuration and "
        f"with the other: {_count(found['onOtherNodes'], 'pod')} would be elsewhere.",
    )
    table = Table("", "before", "after")
    table.add_row("pods pending", str(pending["before"]), str(pending["after"]))
    table.add_row("nodes in use", str(nodes["before"]), str(nodes["after"]))
    for name in ("least", "median", "most"):
        cells = (str(found["podsPerNode"][when][name]) for when in ("before", "after"))
        table.add_row(f"pods on a node, {name}", *cells)
    print_table(console, "", table)
    for key, title in (("pendingOnlyAfter", "Pending only then"), ("placedOnlyAfter", "With a node only then")):
        print_list(console, title, _first(found[key]))


def _print_quotas(quotas: Sequence[Document], console: Console) -> None:
    if not quotas:
        return
    table = Table("quota", "resource", "used", "requested", "may use", "max")
    for each in quotas[:_ROWS]:
        cells = [_quota(each, key) for key in ("used", "request", "runtime", "max")]
        table.add_row(
            escape(each["quota"]),
            escape(_short(each["resource"])),
            *(escape(drawable(console, cell)) for cell in cells),
        )
    print_table(console, "Elastic quotas, before and after", table)
    _print_more(len(quotas), console)


def _quota(entry: Document, key: str) -> str:
    amounts = ((entry[when] or {}).get(key, "–") for when in ("before", "after"))
    before, after = (limit_text(entry["resource"], amount) for amount in amounts)
    return after if before == after else f"{before} → {after}"


def _short(resource: str) -> str:
    return resource.removeprefix("kubernetes.io/")


def _largest_change(node: Document) -> float:
    changes = (
        abs((each["after"]["percent"] or 0) - (each["before"]["percent"] or 0)) for each in node["resources"].values()
    )
    return max(changes, default=0.0)


def _share(amounts: Document | None) -> str:
    if amounts is None:
        return ""
    before, after = (_percent(amounts[when]) for when in ("before", "after"))
    return after if before == after else f"{before} → {after}"


def _percent(amount: Document) -> str:
    return "–" if amount["percent"] is None else f"{amount['percent']:g} %"


def _pods(amounts: Document | None) -> str:
    if amounts is None:
        return ""
    before, after = (amounts[when]["requested"].partition(" ")[0] for when in ("before", "after"))
    return f"{before} → {after}"


def _print_remarks(document: Document, console: Console) -> None:
    snapshot, before = document["snapshot"], document["before"]
    notes = list(document["notes"])
    if not document["settled"]:
        notes.append("some pods were still tried again and again when the simulation ended: the result is not final")
    if before["wouldBePlaced"]:
        notes.append(f"without any change, {_count(before['wouldBePlaced'], 'pending pod')} would get a node as well")
    if before["pending"]:
        notes.append(f"without any change, {_count(before['pending'], 'pod')} would be pending")
    notes += [f"{kind}: {why}; what it says is not taken into account" for kind, why in snapshot["missing"].items()]
    print_list(console, "Remarks", notes)
    lines = document["log"]
    print_list(console, "What the scheduler logged", _first(lines))
    console.print()
    scheduler = document["scheduler"]["configuration"]
    if document["scheduler"]["kubeScheduler"]:
        scheduler += "; pods of default-scheduler as kube-scheduler places them by default"
    counts = f"{_count(snapshot['nodes'], 'node')}, {_count(snapshot['pods'], 'pod')}"
    line = (
        f"On a snapshot of {snapshot['ended']} ({counts}) with {scheduler}; nothing was written. "
        "What is not simulated: koord what-if --help."
    )
    print_text(console, f"[dim]{escape(line)}[/dim]")


def _first(lines: Sequence[str]) -> list[str]:
    more = [f"and {len(lines) - _ROWS} more (-o json has all)"] if len(lines) > _ROWS else []
    return [*lines[:_ROWS], *more]


def _print_more(count: int, console: Console) -> None:
    if count > _ROWS:
        print_text(console, f"and {count - _ROWS} more (-o json has all)")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
