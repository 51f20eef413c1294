"""What ``koord explain`` is asked about, as it is said on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from koordinator.api.kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    ELASTIC_QUOTAS,
    JOBS,
    NODES,
    POD_GROUPS,
    POD_MIGRATION_JOBS,
    PODS,
    REPLICA_SETS,
    RESERVATIONS,
    STATEFUL_SETS,
    Kind,
)
from koordinator.base.spelling import meant
from koordinator.cli.explain_failure import UsageError

# What is explained: a pod, a node, a quota, a gang, a Reservation, a migration or the interference on a node, in each
# of the forms that kubectl takes; or the next cycle of koord-descheduler.


TargetKind = Literal[
    "pod", "node", "quota", "gang", "reservation", "interference", "migration", "rebalance", "workload"
]

KINDS: Final[dict[str, TargetKind]] = {
    "pod": "pod",
    "pods": "pod",
    "po": "pod",
    "node": "node",
    "nodes": "node",
    "no": "node",
    "quota": "quota",
    "quotas": "quota",
    "elasticquota": "quota",
    "elasticquotas": "quota",
    "eq": "quota",
    "eqs": "quota",
    "gang": "gang",
    "gangs": "gang",
    "podgroup": "gang",
    "podgroups": "gang",
    "pg": "gang",
    "pgs": "gang",
    "reservation": "reservation",
    "reservations": "reservation",
    "interference": "interference",
    "migration": "migration",
    "podmigrationjob": "migration",
    "podmigrationjobs": "migration",
    "pmj": "migration",
}
WORKLOADS: Final[Mapping[str, Kind[Any]]] = {
    alias: kind
    for kind, aliases in (
        (DEPLOYMENTS, ("deployment", "deploy")),
        (REPLICA_SETS, ("replicaset", "rs")),
        (STATEFUL_SETS, ("statefulset", "sts")),
        (DAEMON_SETS, ("daemonset", "ds")),
        (JOBS, ("job",)),
    )
    for alias in (*aliases, kind.plural)
}
"""Whose pods are scheduled: the word on the command line -> the kind."""
_OF_PODS: Final = frozenset({"cronjob", "cj", "service", "svc"})
"""Kinds that a user may well name, because their pods are what is pending."""
REBALANCE: Final = "rebalance"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_OF_WORKLOAD: Final = re.compile(rf"{_NAME.pattern}:[-a-z0-9]{{1,63}}(:[-a-z0-9]{{1,63}})?")
"""A gang that is a pod group of a Workload, such as ``training:workers``."""
_FORMS: Final = (
    "koord explain pod NAME, koord explain pod/NAME -n NAMESPACE, koord explain node NAME, koord explain quota NAME, "
    "koord explain gang NAME, koord explain reservation NAME, koord explain interference NODE, "
    "koord explain migration NAME, koord explain rebalance"
)


@dataclass(frozen=True, slots=True)
class Target:
    """``namespace`` is empty where none was named. With ``guessed`` the user did not say that it is a pod."""

    kind: TargetKind
    name: str
    namespace: str = ""
    guessed: bool = False
    workload: Kind[Any] | None = None
    """Of a workload, of which kind it is."""


def parse_target(words: Sequence[str], namespace: str | None) -> Target:
    """``pod web``, ``po/web``, ``pod shop/web``, ``node n1`` or ``web``. Raises UsageError with what would do."""
    if not words:
        raise UsageError(f"what is to be explained? {_FORMS}")
    if len(words) > 2:
        raise UsageError(f"one object at a time, not {' '.join(words)!r}: {_FORMS}")
    if list(words) == [REBALANCE]:
        return Target(REBALANCE, "")
    word, slash, rest = words[0].partition("/")
    workload = WORKLOADS.get(word.lower())
    name_of_workload = rest if slash else words[1] if len(words) == 2 else ""
    if workload is not None and name_of_workload:
        within, _, short = name_of_workload.rpartition("/")
        return Target("workload", _checked(word, short), within or namespace or "", workload=workload)
    kind, name, guessed = _split(words)
    if kind in ("node", "quota", "reservation", "interference", "migration"):
        # As with kubectl, a namespace says nothing about a node or a Reservation; and names of quotas are global.
        return Target(kind, _checked(kind, name))
    within, slash, short = name.rpartition("/")
    if slash and namespace and within != namespace:
        raise UsageError(f"--namespace: {namespace!r} is not usable: the {kind} is named {name} already")
    if slash or namespace:
        _checked("namespace", within or namespace or "")
    return Target(kind, _checked(kind, short), within or namespace or "", guessed)


def _split(words: Sequence[str]) -> tuple[TargetKind, str, bool]:
    if len(words) == 2:
        kind, name = words
        if kind.lower() not in KINDS:
            raise _unknown(kind, name)
        first, slash, rest = name.partition("/")
        # `node node/n1`: what kubectl get -o name prints may follow the kind.
        same = slash and KINDS.get(first.lower()) == KINDS[kind.lower()]
        return KINDS[kind.lower()], rest if same else name, False
    first, slash, rest = words[0].partition("/")
    if not slash:
        if first.lower() in KINDS or _has_pods(first):
            example = f"koord explain {first} NAME" if first.lower() in KINDS else _FORMS
            raise UsageError(f"which {first}? {example}")
        return "pod", first, True
    if first.lower() in KINDS:
        return KINDS[first.lower()], rest, False
    if _has_pods(first):
        raise _unknown(first, rest)
    return "pod", words[0], True


def _unknown(kind: str, name: str) -> UsageError:
    if _has_pods(kind):
        return UsageError(
            f"{kind} {name} is not scheduled itself, its pods are: find one with kubectl get pods, then koord explain "
            "pod NAME"
        )
    if near := meant(kind, KINDS):
        example = f"koord explain {near} {name}" if name else f"koord explain {near} NAME"
        return UsageError(f"{kind!r} cannot be explained; did you mean {near}? {example}")
    return UsageError(
        f"{kind!r} cannot be explained, pods, nodes, quotas, gangs, reservations, migrations and interference can: "
        f"{_FORMS}"
    )


def _has_pods(kind: str) -> bool:
    return kind.lower() in WORKLOADS or kind.lower() in _OF_PODS or kind.lower().removesuffix("s") in _OF_PODS


def _checked(what: str, name: str) -> str:
    if not _NAME.fullmatch(name) and not (what == "gang" and _OF_WORKLOAD.fullmatch(name)):
        shown = ascii(name)
        raise UsageError(
            f"{shown} is not the name of a {what}: lower-case letters, digits, '-' and '.' are allowed, at most 253"
        )
    return name


LISTED: Final[Mapping[TargetKind, Kind[Any]]] = {
    "pod": PODS,
    "node": NODES,
    "interference": NODES,
    "quota": ELASTIC_QUOTAS,
    "gang": POD_GROUPS,
    "reservation": RESERVATIONS,
    "migration": POD_MIGRATION_JOBS,
}
"""What is explained -> the objects whose names it takes."""


_HELP: Final[Mapping[TargetKind, str]] = {
    "pod": """\
koord explain pod NAME [-n NAMESPACE]      (also: po, pods, pod/NAME, NAMESPACE/NAME, or the name alone)

Of a pod that waits: which plugins rejected how many nodes, the nodes that come closest and what each lacks, what would
help, and what it is tried again for. Of a pod that is on a node: how the node was chosen, and the Reservation that it
uses. Of both: what happened to it, in the order of time: what admission set, each attempt of the scheduler, what the
kubelet and koordlet report, and how koord-descheduler moves it.

  koord explain pod web
  koord explain pod web -o json | jq .timeline""",
    "node": """\
koord explain node NAME      (also: no, nodes, node/NAME)

What is allocated on the node and measured there, against which thresholds; which of the pods that wait it would take,
and who keeps the others off; how its batch and mid capacity is computed; and to how much best-effort pods are held
down there.

  koord explain node node-3""",
    "quota": """\
koord explain quota NAME      (also: eq, elasticquota)

What the quota may use at present and where each amount comes from, who lends to whom, which pods wait for it, and
which is next.

  koord explain quota team-a""",
    "gang": """\
koord explain gang NAME [-n NAMESPACE]      (also: pg, podgroup, NAMESPACE/NAME)

Which members of the gang, and of the gangs that are placed with it, have a node, what the others wait for, and which
part of the network was chosen.

  koord explain gang team-a/training""",
    "reservation": """\
koord explain reservation NAME      (also: reservations)

Whose the Reservation is, who uses it, what is left of it, and which of its owners wait and why.

  koord explain reservation web-release""",
    "migration": """\
koord explain migration NAME      (also: pmj, podmigrationjob)

How far a PodMigrationJob is, what it waits for, and what its author may do where it failed.

  koord get migrations
  koord explain migration move-web""",
    "interference": """\
koord explain interference NODE

Which pods of the node suffer from others, by how much, and who the suspects are; which remedies were tried against
these, in which order, and what each has brought. As koordlet has reported it.

  koord explain interference node-3""",
    "rebalance": """\
koord explain rebalance

Whom koord-descheduler would evict in a cycle that begins now and why, and why all others stay. Nothing is done.""",
    "workload": """\
koord explain deployment NAME [-n NAMESPACE]      (also: replicaset, statefulset, daemonset, job)

How many of its pods there are, which of them wait, and, where there are none, who should make them and what keeps that
controller from it.

  koord explain deployment web""",
}


def help_of_kind(word: str) -> str:
    """What ``--help`` says of the kind; empty where the word is none."""
    word = word.partition("/")[0].lower()
    if word in WORKLOADS:
        return _HELP["workload"]
    if word == REBALANCE:
        return _HELP[REBALANCE]
    return _HELP[KINDS[word]] if word in KINDS else ""
