"""The explanation of a pod on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from koordinator.cli.explain_terminal import escape, print_list, print_table, print_text

_POOLS: Final = {
    "active": "is pending: it waits for its turn",
    "backoff": "is pending: it is tried again in a moment",
    "unschedulable": "is pending: no node can take it",
    "gated": "is pending: it is held back before it is tried at all",
    "in_flight": "is being decided about or bound right now",
    "preempting": "is pending: pods are being evicted to make room for it",
}
_ATTEMPTS_SHOWN: Final = 5


def print_pod(document: Mapping[str, Any], console: Console) -> None:
    """Write it, what matters most first."""
    attempts = document["attempts"]
    print_text(console, f"[bold]{escape(document['pod'])}[/bold]  {_state(document)}")
    if message := _message(document):
        print_text(console, escape(message), indent=2)
    if reservation := document.get("reservation"):
        text = f"It uses the Reservation {reservation}: koord explain reservation {reservation} says what is left."
        print_text(console, escape(text), indent=2)
    _print_fitting(document, console)
    print_list(console, "What would help", document.get("advice", ()))
    _print_retry(document.get("queue", {}), console)
    last = attempts[-1] if attempts else None
    if last is not None and last["result"] == "unschedulable":
        _print_rejection(last, console)
    if last is not None and last["result"] == "placed":
        _print_placement(last, console)
    if last is None and "node" in document:
        console.print()
        print_text(console, _placed_by_others(document))
    _print_closest(document, console)
    _print_attempts(attempts, console)


def _message(document: Mapping[str, Any]) -> str:
    """Without what preemption found on each node, where no node is what keeps the pod back."""
    message: str = document.get("message") or ""
    is_held_back = bool(document.get("fittingNow", {}).get("heldBackBy"))
    return message.partition(" preemption: ")[0] if is_held_back else message


def _state(document: Mapping[str, Any]) -> str:
    queue = document.get("queue")
    if queue is not None:
        count = queue["attempts"]
        tried = f"tried {count} time{'s' if count != 1 else ''}" if count else "not tried yet"
        return f"{_POOLS[queue['pool']]} ({tried})"
    if node := document.get("node"):
        return f"is on node [bold]{escape(node)}[/bold]"
    return "is not waiting and not on a node any more; this is how it was tried"


def _placed_by_others(document: Mapping[str, Any]) -> str:
    scheduler = document.get("scheduler", "")
    whom = f" (it asks for the scheduler {escape(scheduler)})" if scheduler else ""
    return f"This process has not placed it{whom}, so it cannot say why it is there."


def _print_rejection(attempt: Mapping[str, Any], console: Console) -> None:
    if not attempt["rejected"]:
        return
    table = Table("nodes", "rejected by", "because", "for example")
    for entry in attempt["rejected"]:
        table.add_row(
            str(entry["nodes"]),
            escape(entry["plugin"]),
            escape(", ".join(entry["reasons"])),
            escape(", ".join(entry["examples"])) or "all",
        )
    print_table(console, "Why: the last attempt, node by node", table)
    if node := attempt.get("nominatedNode"):
        victims = ", ".join(attempt["evicts"]) or "nobody any more"
        print_text(console, f"It is to have room on {escape(node)}, from where {escape(victims)} must go.")


def _print_placement(attempt: Mapping[str, Any], console: Console) -> None:
    best = attempt["topNodes"]
    plugins = [name for name in best[0]["scoreByPlugin"] if any(node["scoreByPlugin"].get(name) for node in best)]
    table = Table("score of", *(escape(node["node"]) for node in best))
    for plugin in plugins:
        table.add_row(escape(plugin), *(str(node["scoreByPlugin"].get(plugin, 0)) for node in best))
    table.add_row("all together", *(str(node["score"]) for node in best))
    counts = f"{attempt['feasibleNodes']} of {attempt['evaluatedNodes']} nodes were good enough"
    print_table(console, f"{counts}; the best and their scores", table)
    if tie := _tie(attempt):
        print_text(console, tie)
    if others := attempt["otherNodesRejectedBy"]:
        print_text(console, f"Others were rejected by {escape(', '.join(others))}.")


def _tie(attempt: Mapping[str, Any]) -> str:
    """How the node came to be chosen among those that were good enough."""
    node, tied = escape(attempt["node"]), attempt.get("nodesWithTheSameScore")
    if tied is None:
        return ""
    if tied == 0:
        return f"{node} was not chosen for its score: the pod was nominated to it, or a plugin names it."
    if tied == 1:
        return f"{node} has the highest score; no other node has the same."
    return f"{node} is one of {tied} nodes with the same, highest score; it was chosen among them at random."


def _print_fitting(document: Mapping[str, Any], console: Console) -> None:
    fitting = document.get("fittingNow", {})
    if count := fitting.get("nodes"):
        more = count - len(fitting["examples"])
        names = ", ".join(fitting["examples"]) + (f" and {more} more" if more else "")
        nodes = "one node would" if count == 1 else f"{count} nodes would"
        console.print()
        if held_back := fitting.get("heldBackBy"):
            nodes = "one node has" if count == 1 else f"{count} nodes have"
            text = f"Right now {nodes} room for it ({names}); what holds it back is {' and '.join(held_back)}."
            print_text(console, escape(text))
        else:
            print_text(console, f"Right now {nodes} take it: {escape(names)}")
    if reason := document.get("notEvaluated"):
        console.print()
        print_text(console, f"Nodes cannot be evaluated right now: {escape(reason)}")


def _print_retry(queue: Mapping[str, Any], console: Console) -> None:
    print_list(console, "It is tried again as soon as", queue.get("triedAgainWhen", ()))
    if "triedAgainInSeconds" in queue:
        console.print(f"\nIt is tried again in {queue['triedAgainInSeconds']:g} s.")


def _print_closest(document: Mapping[str, Any], console: Console) -> None:
    if not document.get("closestNodes"):
        return
    table = Table("node", "what keeps the pod off it")
    for node in document["closestNodes"]:
        lacks = [line for lack in node["lacks"] for line in lack["details"] or lack["reasons"]]
        table.add_row(escape(node["node"]), escape("\n".join(lacks)))
    print_table(console, "The nodes that come closest, as of now", table)


def _print_attempts(attempts: Sequence[Mapping[str, Any]], console: Console) -> None:
    if len(attempts) < 2:
        return
    table = Table("attempt", "at", "result")
    for attempt in attempts[-_ATTEMPTS_SHOWN:]:
        result = f"placed on {attempt['node']}" if attempt["result"] == "placed" else attempt["message"]
        table.add_row(str(attempt["attempt"]), attempt["time"][:19] + "Z", escape(result))
    print_table(console, "Last attempts", table)
