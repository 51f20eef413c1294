"""Random sequences of events for the accounts of quotas, and what must hold after each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts, CountedPod, PodKind
from koordinator.scheduler.plugins.elastic_quota.amounts import AccountSettings, masked, summed
from tests.model.quota_tree.quota_objects import wire_quota

RESOURCES = ("cpu", "memory", "gpu")
QUOTAS = tuple(f"q{number}" for number in range(8))
UNLIMITED = {"cpu": 10**15, "memory": 10**18}
SETTINGS = AccountSettings(UNLIMITED, UNLIMITED)


def amounts(random: Random, most: int) -> dict[str, int]:
    return {name: random.randint(0, most) for name in RESOURCES if random.random() < 0.8}


def random_quota(random: Random) -> ElasticQuota:
    """Parents may be unknown, or go round in a ring."""
    name = random.choice((*QUOTAS, "koordinator-default-quota"))
    maximum = {key: random.randint(0, 40) for key in RESOURCES if random.random() < 0.9}
    minimum = {key: random.randint(0, value) for key, value in maximum.items()}
    labels = {"allow-lent-resource": random.choice(("true", "false"))}
    annotations: dict[str, Any] = {}
    if random.random() < 0.3:
        annotations["shared-weight"] = {key: random.randint(0, 5) for key in maximum}
    if random.random() < 0.2:
        annotations["namespaces"] = [f"ns{random.randint(0, 3)}"]
    parent = random.choice((*QUOTAS[:3], ROOT_QUOTA, ROOT_QUOTA, "nobody"))
    created = f"2026-01-01T00:00:{random.randint(0, 5):02}Z"
    return wire_quota(
        name,
        parent=parent if name.startswith("q") else None,
        is_parent=name in QUOTAS[:3],
        max=maximum,
        min=minimum,
        labels=labels,
        annotations=annotations,
        creationTimestamp=created,
        namespace=random.choice(("kube-system", "ns0")),
    )


def random_kind(random: Random) -> PodKind:
    label = random.choice((*QUOTAS, "", "unknown"))
    return PodKind(
        group=(label, f"ns{random.randint(0, 4)}"),
        request=amounts(random, 5000),
        priority=random.randint(0, 3),
        is_non_preemptible=random.random() < 0.2,
    )


def random_pod(random: Random, uid: str, kinds: list[PodKind]) -> CountedPod:
    """Of a new kind, or of one that other pods have had."""
    if not kinds or random.random() < 0.5:
        kinds.append(random_kind(random))
    return CountedPod(uid, f"default/{uid}", random.choice(kinds), random.random() < 0.5)


def events(random: Random, count: int, pods: int) -> Iterator[tuple[str, Any]]:
    """(method of Accounts, its argument)."""
    kinds: list[PodKind] = []
    for _ in range(count):
        draw = random.random()
        uid = f"u{random.randrange(pods)}"
        if draw < 0.08:
            yield "set_quota", random_quota(random)
        elif draw < 0.1:
            yield "remove_quota", f"{random.choice(('kube-system', 'ns0'))}/{random.choice(QUOTAS)}"
        elif draw < 0.15:
            yield "set_node", (f"n{random.randrange(4)}", amounts(random, 60_000))
        elif draw < 0.17:
            yield "remove_node", f"n{random.randrange(4)}"
        elif draw < 0.6:
            yield "set_pod", random_pod(random, uid, kinds)
        elif draw < 0.75:
            yield "assign", uid
        else:
            yield "remove_pod", uid


class Model:
    """What there is, without any sum."""

    def __init__(self) -> None:
        self.quotas: dict[str, ElasticQuota] = {}
        self.pods: dict[str, CountedPod] = {}
        self.nodes: dict[str, dict[str, int]] = {}

    def apply(self, accounts: Accounts, method: str, argument: Any) -> None:
        """Tell both."""
        if method == "set_node":
            accounts.set_node(*argument)
            self.nodes[argument[0]] = argument[1]
            return
        if method == "assign":
            known_pod = accounts.pods.get(argument)
            if known_pod is not None:
                assert known_pod is self.pods[argument]
                accounts.assign(known_pod, not known_pod.is_assigned)
            return
        getattr(accounts, method)(argument)
        if method == "set_quota":
            self.quotas[argument.metadata.key] = argument
        elif method == "set_pod":
            self.pods[argument.uid] = argument
        else:
            known = {"remove_quota": self.quotas, "remove_pod": self.pods, "remove_node": self.nodes}[method]
            known.pop(argument, None)  # type: ignore[attr-defined]

    def rebuilt(self, settings: AccountSettings, random: Random) -> Accounts:
        """Accounts that were notified of everything at once, in another order."""
        accounts = Accounts(settings)
        notified: list[tuple[Any, ...]] = [
            *((accounts.set_quota, each) for each in self.quotas.values()),
            *((accounts.set_pod, _by_itself(each)) for each in self.pods.values()),
            *((accounts.set_node, name, each) for name, each in self.nodes.items()),
        ]
        random.shuffle(notified)
        for method, *arguments in notified:
            method(*arguments)
        return accounts


def _by_itself(pod: CountedPod) -> CountedPod:
    """The pod for other accounts: a kind belongs to one."""
    return CountedPod(pod.uid, pod.key, replace(pod.kind, pending=0, pending_used=0, is_pending=False), pod.is_assigned)


def numbers(accounts: Accounts) -> dict[str, Any]:
    """All that follows, without amounts of 0, which nobody can tell from none."""
    forest, found = accounts.forest, dict[str, Any]()
    for name, node in {**forest.nodes, **{f"root of {tree!r}": root for tree, root in forest.roots.items()}}.items():
        total = node.total
        values = (
            total.request, total.used, total.non_preemptible_request, total.non_preemptible_used, node.child_request,
            node.own.used, forest.runtime(node), forest.guaranteed(node), forest.allocated(node),
        )  # fmt: skip
        found[name] = [{key: amount for key, amount in each.items() if amount} for each in values]
    return found


def check_sums(accounts: Accounts, model: Model) -> None:
    """What each quota uses is the sum over its assigned pods, and no share is beyond what is there."""
    forest = accounts.forest
    own: dict[str, list[dict[str, int]]] = {}
    for pod in model.pods.values():
        if pod.is_assigned:
            quota = accounts._quota_of(pod.kind.group)
            own.setdefault(quota, []).append(masked(pod.kind.request, forest.nodes[quota].specification.max))
    for name, node in forest.nodes.items():
        expected = summed(own.get(name, ()))
        assert {k: v for k, v in node.own.used.items() if v} == {k: v for k, v in expected.items() if v}, name
    for parent in (*forest.roots.values(), *forest.nodes.values()):
        available = forest.runtime(parent)
        for key in available:
            shares = [forest.runtime(child).get(key, 0) for child in parent.children]
            assert sum(shares) <= max(available[key], 0), (parent.name, key)
    for node in forest.nodes.values():
        if node.parent is not None and not node.is_outside:
            floor, request, runtime = forest.floor(node), node.limited_request, forest.runtime(node)
            for key in node.parent.keys:
                assert runtime[key] >= min(floor.get(key, 0), request.get(key, 0)), (node.name, key)
