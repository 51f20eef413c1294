"""ImageLocality: prefers nodes that have the pod's images already, and more so for large images that are on many nodes.

An image counts with its size times the share of all nodes that have it, so that a pod is not drawn to the one node that
happened to pull its image first. That share makes every node's score depend on all nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from koordinator.api.node import Node
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE, SKIP_SCORE, EventHandler
from koordinator.scheduler.engine.plugin_forms import CrossNodeScoreState
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView

_MEBIBYTE: Final = 1024 * 1024
_AT_LEAST: Final = 23 * _MEBIBYTE
"""A node whose counted sizes are below this in all scores 0: such images are pulled quickly."""
_AT_MOST: Final = 1000 * _MEBIBYTE
"""For each container of the pod: the counted size from which on a node has the highest score."""
_SHARED: Final = "ImageLocality"
_NAMES_MEMO: Final = "ImageLocality/names"
_KEY_MEMO: Final = "ImageLocality/key"
_NOWHERE: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass(slots=True)
class Image:
    """The nodes that have an image."""

    sizes: dict[int, int] = field(default_factory=dict)
    """Size by row."""
    largest: int = 0
    """The largest size on any node since the image was first seen."""


class ImageIndex(EventHandler):
    """The rows that have each image, for all profiles."""

    def __init__(self) -> None:
        self.changes = 0
        """Grows when nodes come or go, and when the images of one change."""
        self.on_reset()

    def on_reset(self) -> None:
        self.changes += 1
        self._nodes: dict[int, Node] = {}
        self._images: dict[str, Image] = {}

    @classmethod
    def of(cls, view: ClusterView) -> ImageIndex:
        """The index of a view, created on the first call."""
        return view.share(_SHARED, cls)

    def get(self, name: str) -> Image | None:
        """The image; None if no node has it."""
        return self._images.get(name)

    def on_node(self, row: int, node: Node) -> None:
        known = self._nodes.get(row)
        if known is None or known.status.images != node.status.images:
            self.on_node_removed(row, node.metadata.name)
            self.changes += 1
            for name, size in _images(node).items():
                image = self._images.setdefault(name, Image())
                image.sizes[row] = size
                image.largest = max(image.largest, size)
        self._nodes[row] = node

    def on_node_removed(self, row: int, name: str) -> None:
        node = self._nodes.pop(row, None)
        if node is None:
            return
        self.changes += 1
        for image in _images(node):
            sizes = self._images[image].sizes
            del sizes[row]
            if not sizes:
                del self._images[image]


class ImageLocality(CrossNodeScoreState, EventHandler):
    name = "ImageLocality"
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._index = ImageIndex.of(view)

    @property
    def event_handler(self) -> EventHandler:
        return self._index

    def class_key(self, pod: PodInfo) -> Hashable:
        # Everything is in context_key: pods whose images change no node's score are one class, whatever these images
        # are.
        return None

    def context_key(self, pod: PodInfo) -> Hashable:
        """The pod's images that some node has, and the number of its containers; None if no node scores by them."""
        known: tuple[int, Hashable] | None = pod.memo.get(_KEY_MEMO)
        if known is not None and known[0] == self._index.changes:
            return known[1]
        wanted = _wanted(pod)
        key = (self._present(wanted), len(wanted)) if self._matters(wanted) else None
        pod.memo[_KEY_MEMO] = self._index.changes, key
        return key

    def pre_score(self, pod: PodInfo) -> Any:
        wanted = _wanted(pod)
        if not self._matters(wanted):
            return SKIP_SCORE
        return ImageScores(self._index, self.view.columns, Counter(self._present(wanted)), len(wanted))

    def _present(self, wanted: Iterable[str]) -> tuple[str, ...]:
        return tuple([name for name in wanted if self._index.get(name) is not None])

    def _matters(self, wanted: Sequence[str]) -> bool:
        """Whether a node with all of these images would score above 0. In a large cluster few images are on enough
        nodes, so that most pods need no class of their own because of them."""
        images = [image for name in wanted if (image := self._index.get(name)) is not None]
        if not images:
            return False
        nodes = len(self.view.columns.row_of)
        most = sum(image.largest * len(image.sizes) for image in images) / max(1, nodes)
        return MAX_NODE_SCORE * (most - _AT_LEAST) >= _AT_MOST * len(wanted) - _AT_LEAST


class ImageScores:
    """The scores of all rows for one class of pods, cached until a node's images or the number of nodes change."""

    def __init__(self, index: ImageIndex, columns: NodeColumns, times: Mapping[str, int], containers: int) -> None:
        self._index = index
        self._columns = columns
        self._times = times
        """Image -> the number of containers that use it."""
        self._at_most = _AT_MOST * containers
        self._sizes: dict[str, NDArray[np.float64]] = {}
        self._shares: list[float] = []
        """The share of all nodes that have each image."""
        self._scores: Ints | None = None

    def scores(self, feasible: Mask) -> Ints:
        """0..100 for each row, whichever are feasible."""
        if self._scores is None:
            size = self._columns.size
            self._sizes = {name: np.zeros(size) for name in self._times}
            for name, sizes in self._sizes.items():
                there = self._there(name)
                sizes[list(there)] = list(there.values())
            self._shares = self._present_shares()
            self._scores = self._compute()
        return self._scores

    def apply_delta(self, rows: Rows) -> bool:
        """Apply changed, new or removed nodes on ``rows``; returns whether that changes any score."""
        before = self._scores
        if before is None:
            return True
        size, changed = self._columns.size, False
        for name, sizes in self._sizes.items():
            if sizes.shape[0] < size:
                sizes = self._sizes[name] = np.concatenate([sizes, np.zeros(size - sizes.shape[0])])
                changed = True
            there = self._there(name)
            for row in rows.tolist():
                if sizes[row] != there.get(row, 0):
                    sizes[row] = there.get(row, 0)
                    changed = True
        shares = self._present_shares()
        if not changed and shares == self._shares:
            return False
        self._shares = shares
        self._scores = self._compute()
        return not np.array_equal(before, self._scores)

    def _there(self, name: str) -> Mapping[int, int]:
        image = self._index.get(name)
        return image.sizes if image is not None else _NOWHERE

    def _present_shares(self) -> list[float]:
        nodes = max(1, len(self._columns.row_of))
        return [len(self._there(name)) / nodes for name in self._sizes]

    def _compute(self) -> Ints:
        total = np.zeros(self._columns.size, dtype=np.int64)
        for (name, sizes), share in zip(self._sizes.items(), self._shares, strict=True):
            total += (sizes * share).astype(np.int64) * self._times[name]
        counted = np.clip(total, _AT_LEAST, self._at_most)
        scores: Ints = MAX_NODE_SCORE * (counted - _AT_LEAST) // (self._at_most - _AT_LEAST)
        return scores


def normalized_name(image: str) -> str:
    """The name with a tag, as upstream normalises the names that container runtimes report."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def _wanted(pod: PodInfo) -> tuple[str, ...]:
    """The images of the pod's containers, one for each, sorted."""
    names: tuple[str, ...] | None = pod.memo.get(_NAMES_MEMO)
    if names is None:
        spec = pod.pod.spec
        containers = (*spec.init_containers, *spec.containers)
        names = pod.memo[_NAMES_MEMO] = tuple(sorted(normalized_name(each.image) for each in containers))
    return names


def _images(node: Node) -> dict[str, int]:
    """Name -> size of every image of the node; the first one counts if a name occurs twice."""
    images: dict[str, int] = {}
    for image in node.status.images:
        for name in image.names:
            images.setdefault(name, image.size_bytes)
    return images
