"""Changes of quotas as nobody would think of them: drawn from a seed, each from what was accepted before it."""

from __future__ import annotations

import json
from collections import deque
from random import Random
from typing import Any

from koordinator.api.document import Document, copied
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA
from koordinator.api.quantity import Quantity
from tests.model.quota_tree.quota_objects import P, quota_document
from tests.real.quota_cases import BUSY, NAMED, STORED, Step, create, delete, fill, pod, review_pod, update

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
_NAMESPACES = ("n1", "n2", "n3", "n4", "n5", "n6")
_POD_NAMESPACES = ("own", "claimed", "default")
_UNREADABLE = {
    "shared-weight": ("{", "[]", '"cpu"', '{"cpu":"x"}', '{"cpu":true}'),
    "max-strict-check-resource-keys": ("{", "{}", '"cpu"', "[1]"),
}
_ODD = {
    "shared-weight": ('{"cpu":-1}', '{"cpu":"-1","memory":"-1m"}', '{"cpu":null}', '{"disk":"1"}', "{}"),
    "max-strict-check-resource-keys": ("null", "[]", '["disk"]', '["cpu"]', '["cpu",null]'),
    "namespaces": ("{", "null", "[]", '"n1"', "[1]", '["n1","n1"]'),
    "guaranteed": ("{", "null", "[]", "{}", '{"cpu":"-5"}'),
}
_ODD_AMOUNTS = ("-1", "-1m", "0", "1n", "9E", "1e3", "0.0005")
_NO_AMOUNTS: tuple[Any, ...] = ("", "x", "1 ", "1KB", True, [], {})
_CHANGED_LABELS = ("is-root", "allow-force-update", "allow-lent-resource")


class QuotaSequence:
    """``next`` is the next question; ``accepted`` is told of every one that was allowed, before the next is sent."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._number = 0
        self._due: deque[Step] = deque()
        self.quotas: dict[str, Document] = {each["metadata"]["name"]: each for each in (STORED, BUSY, NAMED)}

    def next(self) -> Step:
        if self._due:
            return self._due.popleft()
        self._number += 1
        kinds = (self._creation, self._update, self._unreadable, self._deletion, self._pod)
        return self._random.choices(kinds, (45, 32, 3, 12, 8))[0]()

    def accepted(self, step: Step, document: Document) -> None:
        """``document`` is the object of the step as it was answered."""
        if step.path.endswith("-pod"):
            return
        if step.path.startswith("/mutate"):
            self._due.append(create(f"{step.name}-filled", document))
        elif step.operation == "DELETE":
            del self.quotas[document["metadata"]["name"]]
        else:
            self.quotas[document["metadata"]["name"]] = document

    def depth(self) -> int:
        return max(len(self._path(name)) for name in self.quotas)

    def _creation(self) -> Step:
        name = f"q{self._number}" if self._random.random() < 0.95 else self._any()
        new = self._quota(name)
        if self._random.random() < 0.1:
            _annotate(new, *self._odd())
        if self._random.random() < 0.05:
            self._spoil(new, _ODD_AMOUNTS)
        send = fill if self._random.random() < 0.4 else create
        return send(f"{self._number}-{send.__name__}-{name}", new)

    def _unreadable(self) -> Step:
        new = self._quota(f"q{self._number}")
        if self._random.random() < 0.5:
            key = self._random.choice(list(_UNREADABLE))
            _annotate(new, key, self._random.choice(_UNREADABLE[key]))
            return create(f"{self._number}-unreadable", new, same_words=False)
        self._spoil(new, _NO_AMOUNTS)
        send = self._random.choice((fill, create))
        return send(f"{self._number}-unreadable", new, same_words=False)

    def _update(self) -> Step:
        parents = [name for name in self.quotas if self._children(name)]
        old = self.quotas[self._random.choice(parents) if parents and self._random.random() < 0.3 else self._any()]
        new: Document = copied(old)
        changes = (self._amend, self._move, self._relabel, self._claim, self._rename_resources, self._annotated)
        for change in self._random.choices(changes, (45, 15, 20, 10, 5, 10), k=self._random.randint(1, 2)):
            change(new)
        return update(f"{self._number}-update-{old['metadata']['name']}", old, new)

    def _deletion(self) -> Step:
        if self._random.random() < 0.05:
            return delete(f"{self._number}-delete-unknown", self._quota("nobody"))
        leaves = [name for name in self.quotas if not self._children(name)]
        name = self._random.choice(leaves if self._random.random() < 0.7 else list(self.quotas))
        return delete(f"{self._number}-delete-{name}", self.quotas[name])

    def _pod(self) -> Step:
        name, namespace = f"{self._number}-pod", self._random.choice(_POD_NAMESPACES)
        target = self._random.choice((self._any(), self._any(), "", "nobody", DEFAULT_QUOTA))
        new = pod("a", target, namespace)
        before = self._random.choice((None, self._any(), ""))
        # Of a pod that is in a parent already ours lets updates pass.
        if before is None or before == target or namespace != "default":
            return review_pod(name, new)
        preemptible = {"preemptible": "false"} if self._random.random() < 0.2 else {}
        return review_pod(name, new, pod("a", before, **preemptible))

    def _quota(self, name: str) -> Document:
        parent = self._parent()
        above = self.quotas.get(parent)
        keys = self._keys(above)
        kept = keys if above is None or self._random.random() < 0.05 else (above["spec"].get("min") or {})
        least = {key: self._share(parent, key) for key in kept if self._random.random() < 0.8}
        new = quota_document(
            name,
            parent=self._random.choice((ROOT_QUOTA, "", None)) if parent == ROOT_QUOTA else parent,
            is_parent=self._random.choice((True, True, True, False, None)),
            tree=self._tree(above),
            max={key: self._spelled(key, self._random.randrange(200, 400) * 1000) for key in keys},
            min={key: self._spelled(key, amount) for key, amount in least.items()},
        )
        for label in _CHANGED_LABELS:
            if self._random.random() < 0.07:
                new["metadata"]["labels"][f"{P}/{label}"] = self._random.choice(("true", "false", "True"))
        if self._random.random() < 0.15:
            self._claim(new)
        if self._random.random() < 0.5:
            self._guarantee(new, least)
        return new

    def _parent(self) -> str:
        kind = self._random.random()
        parents = [name for name, each in self.quotas.items() if _label(each, "is-parent") == "true"]
        if kind < 0.15 or not parents:
            return ROOT_QUOTA
        if kind < 0.2:
            return "nobody"
        if kind < 0.3:
            return self._any()
        # The deepest of a few, so that trees grow down as well as in width.
        return max(self._random.choices(parents, k=3), key=lambda name: len(self._path(name)))

    def _keys(self, above: Document | None) -> tuple[str, ...]:
        if above is None or self._random.random() < 0.05:
            return tuple(self._random.sample(RESOURCES, self._random.randint(1, 3)))
        return tuple((above["spec"].get("max") or {}).keys())

    def _tree(self, above: Document | None) -> str | None:
        if above is not None and self._random.random() < 0.92:
            return _label(above, "tree-id") or None
        return self._random.choice((None, "t1", "t2"))

    def _share(self, parent: str, key: str) -> int:
        """In thousandths: mostly some of what the parent has left, sometimes all of it, or a trace more."""
        if parent not in self.quotas:
            return self._random.randrange(100, 200) * 1000
        given = sum(_milli(self.quotas[child], key) for child in self._children(parent))
        left = max(0, _milli(self.quotas[parent], key) - given)
        return self._random.choices((self._random.randint(0, left // 1000) * 1000, left, left + 1), (88, 7, 5))[0]

    def _spelled(self, key: str, milli: int) -> Any:
        """One of the ways to write it."""
        whole, rest = divmod(milli, 1000)
        if rest:
            return self._random.choice((f"{milli}m", f"{milli}000u", f"{whole}.{rest:03}"))
        ways: list[Any] = [str(whole), whole, f"{milli}m", f"{whole}e0", f"{whole}.0"]
        return self._random.choice([*ways, f"{whole * 1024}Ki"] if key == "memory" and whole < 0 else ways)

    def _amend(self, new: Document) -> None:
        field = self._random.choice(("min", "min", "max"))
        resources = new["spec"].get(field) or {}
        if not resources:
            return
        key = self._random.choice(list(resources))
        milli = _milli(new, key, field)
        amended = self._random.choice((milli + 1000, milli // 2, milli * 2, milli - 1, milli + 1, milli + 20000))
        # Another spelling of the same amount is a change to the original alone.
        if max(0, amended) != milli:
            new["spec"][field] = {**resources, key: self._spelled(key, max(0, amended))}

    def _move(self, new: Document) -> None:
        name = new["metadata"]["name"]
        parent = self._parent()
        # Below itself only the original lets a quota be moved.
        if name not in self._path(parent):
            new["metadata"]["labels"][f"{P}/parent"] = parent

    def _relabel(self, new: Document) -> None:
        key = self._random.choice(("is-parent", "is-parent", "tree-id", *_CHANGED_LABELS))
        values = ("t1", "t2", "") if key == "tree-id" else ("true", "false", "")
        new["metadata"]["labels"][f"{P}/{key}"] = self._random.choice(values)

    def _claim(self, new: Document) -> None:
        _annotate(new, "namespaces", json.dumps(self._random.sample(_NAMESPACES, self._random.randint(0, 2))))

    def _rename_resources(self, new: Document) -> None:
        key = self._random.choice(RESOURCES)
        for field in self._random.choice((("max",), ("max", "min"), ("min",))):
            resources = dict(new["spec"].get(field) or {})
            if resources.pop(key, None) is None:
                resources[key] = "1"
            new["spec"][field] = resources

    def _annotated(self, new: Document) -> None:
        if self._random.random() < 0.5:
            _annotate(new, *self._odd())
            return
        self._guarantee(new, {key: _milli(new, key) for key in new["spec"].get("min") or {}})

    def _guarantee(self, new: Document, least: dict[str, int]) -> None:
        factor = self._random.choice((0, 50, 100, 100, 150, 300))
        _annotate(new, "guaranteed", json.dumps({key: f"{amount * factor // 100}m" for key, amount in least.items()}))

    def _odd(self) -> tuple[str, str]:
        key = self._random.choice(list(_ODD))
        return key, self._random.choice(_ODD[key])

    def _spoil(self, new: Document, amounts: tuple[Any, ...]) -> None:
        field = self._random.choice(("max", "min"))
        new["spec"][field] = {**new["spec"].get(field, {}), "cpu": self._random.choice(amounts)}
        if self._random.random() < 0.3:
            new["status"] = {"used": {"cpu": "1k", "memory": "1"}}
            _annotate(new, "max-strict-check-resource-keys", '["memory","cpu"]')

    def _any(self) -> str:
        return self._random.choice(list(self.quotas))

    def _children(self, name: str) -> list[str]:
        return [each for each, document in self.quotas.items() if _label(document, "parent") == name]

    def _path(self, name: str) -> list[str]:
        """From a quota up to the top."""
        path: list[str] = []
        while name in self.quotas and name not in path:
            path.append(name)
            name = _label(self.quotas[name], "parent")
        return path


def _label(document: Document, key: str) -> str:
    return str((document["metadata"].get("labels") or {}).get(f"{P}/{key}", ""))


def _annotate(document: Document, key: str, text: str) -> None:
    document["metadata"].setdefault("annotations", {})[f"{P}/{key}"] = text


def _milli(document: Document, key: str, field: str = "min") -> int:
    return Quantity.parse((document["spec"].get(field) or {}).get(key, 0)).milli
