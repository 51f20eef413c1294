"""The explanation of a pod on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from koordinator.api.explanations import AttemptRecord, PodExplanation, QueueState
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


def print_pod(document: PodExplanation, console: Console) -> None:
    """Write it, what matters most first."""
    attempts = document.attempts or ()
    print_text(console, f"[bold]{escape(document.pod)}[/bold]  {_state(document)}")
    if message := _message(document):
        print_text(console, escape(message), indent=2)
    if reservation := document.reservation:
        text = f"It uses the Reservation {reservation}: koord explain reservation {reservation} says what is left."
        print_text(console, escape(text), indent=2)
    if gang := document.gang:
        print_text(console, escape(f"It is a member of the gang {gang}: koord explain gang {gang}"), indent=2)
    for plugin, facts in (document.facts or {}).items():
        print_text(console, escape(f"{plugin}: {' '.join(facts)}"), indent=2)
    _print_fitting(document, console)
    print_list(console, "What would help", document.advice or ())
    _print_retry(document.queue, console)
    last = attempts[-1] if attempts else None
    if last is not None and last.result == "unschedulable":
        _print_rejection(last, console)
    if last is not None and last.result == "placed":
        _print_placement(last, console)
    if last is None and document.node is not None:
        console.print()
        print_text(console, _placed_by_others(document))
    _print_closest(document, console)
    _print_attempts(attempts, console)


def _message(document: PodExplanation) -> str:
    """Without what preemption found on each node, where no node is what keeps the pod back."""
    message = document.message or ""
    is_held_back = document.fitting_now is not None and document.fitting_now.held_back_by is not None
    return message.partition(" preemption: ")[0] if is_held_back else message


def _state(document: PodExplanation) -> str:
    queue = document.queue
    if queue is not None:
        count = queue.attempts
        tried = f"tried {count} time{'s' if count != 1 else ''}" if count else "not tried yet"
        return f"{_POOLS[queue.pool]} ({tried})"
    if node := document.node:
        return f"is on node [bold]{escape(node)}[/bold]"
    return "is not waiting and not on a node any more; this is how it was tried"


def _placed_by_others(document: PodExplanation) -> str:
    scheduler = document.scheduler
    whom = f" (it asks for the scheduler {escape(scheduler)})" if scheduler else ""
    return f"This process has not placed it{whom}, so it cannot say why it is there."


def _print_rejection(attempt: AttemptRecord, console: Console) -> None:
    if not attempt.rejected:
        return
    table = Table("nodes", "rejected by", "because", "for example")
    for entry in attempt.rejected:
        table.add_row(
            str(entry.nodes),
            escape(entry.plugin),
            escape(", ".join(entry.reasons)),
            escape(", ".join(entry.examples)) or "all",
        )
    print_table(console, "Why: the last attempt, node by node", table)
    if node := attempt.nominated_node:
        victims = ", ".join(attempt.evicts or ()) or "nobody any more"
        print_text(console, f"It is to have room on {escape(node)}, from where {escape(victims)} must go.")
        for gang in attempt.gangs_evicted_whole or ():
            print_text(console, f"Gang {escape(gang)} leaves whole, from other nodes, too: too few would be left.")


def _print_placement(attempt: AttemptRecord, console: Console) -> None:
    best = attempt.top_nodes or ()
    names = best[0].score_by_plugin if best else ()
    plugins = [name for name in names if any(node.score_by_plugin.get(name) for node in best)]
    table = Table("score of", *(escape(node.node) for node in best))
    for plugin in plugins:
        table.add_row(escape(plugin), *(str(node.score_by_plugin.get(plugin, 0)) for node in best))
    table.add_row("all together", *(str(node.score) for node in best))
    counts = f"{attempt.feasible_nodes} of {attempt.evaluated_nodes} nodes were good enough"
    print_table(console, f"{counts}; the best and their scores", table)
    if tie := _tie(attempt):
        print_text(console, tie)
    if others := attempt.other_nodes_rejected_by:
        print_text(console, f"Others were rejected by {escape(', '.join(others))}.")


def _tie(attempt: AttemptRecord) -> str:
    """How the node came to be chosen among those that were good enough."""
    node, tied = escape(attempt.node or ""), attempt.nodes_with_the_same_score
    if tied is None:
        return ""
    if tied == 0:
        return f"{node} was not chosen for its score: the pod was nominated to it, or a plugin names it."
    if tied == 1:
        return f"{node} has the highest score; no other node has the same."
    return f"{node} is one of {tied} nodes with the same, highest score; it was chosen among them at random."


def _print_fitting(document: PodExplanation, console: Console) -> None:
    fitting = document.fitting_now
    if fitting is not None and (count := fitting.nodes):
        more = count - len(fitting.examples)
        names = ", ".join(fitting.examples) + (f" and {more} more" if more else "")
        nodes = "one node would" if count == 1 else f"{count} nodes would"
        console.print()
        if held_back := fitting.held_back_by:
            nodes = "one node has" if count == 1 else f"{count} nodes have"
            text = f"Right now {nodes} room for it ({names}); what holds it back is {' and '.join(held_back)}."
            print_text(console, escape(text))
        else:
            print_text(console, f"Right now {nodes} take it: {escape(names)}")
    if reason := document.not_evaluated:
        console.print()
        print_text(console, f"Nodes cannot be evaluated right now: {escape(reason)}")


def _print_retry(queue: QueueState | None, console: Console) -> None:
    if queue is None:
        return
    print_list(console, "It is tried again as soon as", queue.tried_again_when or ())
    if queue.tried_again_in_seconds is not None:
        console.print(f"\nIt is tried again in {queue.tried_again_in_seconds:g} s.")


def _print_closest(document: PodExplanation, console: Console) -> None:
    if not document.closest_nodes:
        return
    table = Table("node", "what keeps the pod off it")
    for node in document.closest_nodes:
        lacks = [line for lack in node.lacks for line in lack.details or lack.reasons]
        table.add_row(escape(node.node), escape("\n".join(lacks)))
    print_table(console, "The nodes that come closest, as of now", table)


def _print_attempts(attempts: Sequence[AttemptRecord], console: Console) -> None:
    if len(attempts) < 2:
        return
    table = Table("attempt", "at", "result")
    for attempt in attempts[-_ATTEMPTS_SHOWN:]:
        result = f"placed on {attempt.node}" if attempt.result == "placed" else attempt.message or ""
        table.add_row(str(attempt.attempt), attempt.time[:19] + "Z", escape(result))
    print_table(console, "Last attempts", table)


def print_timeline(document: PodExplanation, console: Console) -> None:
    """What each program did with it, in the order of time; nothing where that is not known."""
    moments = document.timeline or ()
    if not moments:
        return
    table = Table("at", "who", "what", "why")
    for moment in moments:
        table.add_row(*map(escape, (f"{moment.time[:19]}Z", moment.program, moment.what, moment.why)))
    print_table(console, "What happened to it", table)
