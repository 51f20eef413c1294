"""Broken objects by the thousand, in batches beside healthy ones, in a program that runs."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

from koordinator.api.document import Document
from koordinator.api.kinds import Kind
from koordinator.kube.decoding import decode_item
from koordinator.kube.informer import Informer
from koordinator.kube.interface import Malformed
from tests.fuzz.sound_objects import sound
from tests.real_world.garbage import Garbage

BATCH: Final = 20
SLOTS: Final = tuple(f"bad-{number}" for number in range(BATCH))
"""The names of the broken objects of a batch, which may refer to each other."""
_NAMES: Final = (*SLOTS, "good", "broken", "default", "koordinator-root-quota")
_SHOWN: Final = 3000


@dataclass(frozen=True)
class Case:
    """A broken object: what ``seed`` has made of a sound one."""

    seed: int
    kind: Kind[Any]
    document: Document

    @property
    def name(self) -> str:
        name: str = self.document["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        namespace: str = self.document["metadata"].get("namespace", "")
        return namespace

    @property
    def is_decoded(self) -> bool:
        return not isinstance(decode_item(self.kind, json.dumps(self.document).encode()), Malformed)

    def __str__(self) -> str:
        return f"{self.kind.name} of seed {self.seed}: {json.dumps(self.document)[:_SHOWN]}"


def draw(kind: Kind[Any], seed: int, name: str, namespace: str) -> Case:
    random = Random(seed)
    return Case(seed, kind, Garbage(random, _NAMES).document(sound(kind, random, name, namespace)))


class Program(Protocol):
    """A program among healthy objects. ``in_turn``: how many objects of one name ``meet`` shows one after the other."""

    in_turn: int

    @property
    def informers(self) -> Iterable[Informer[Any]]: ...

    def running(self) -> AbstractAsyncContextManager[None]: ...

    async def meet(self, cases: Sequence[Case]) -> None:
        """Let the broken objects come, see that the healthy ones are served, and take them away. Raises
        AssertionError."""
        ...


def campaign(make: Callable[[], Program], plural: str, seeds: range) -> None:
    """Every broken object of a kind that the seeds make."""
    program = make()
    kind = watched(program)[plural]
    names = watched_names(program, kind)
    names = [*names] * program.in_turn if len(names) == 1 else names
    batch = list[Case]()

    async def all_of_them() -> None:
        nonlocal batch
        async with program.running():
            for start in range(0, len(seeds), len(names)):
                chosen = zip(seeds[start : start + len(names)], names, strict=False)
                batch = [draw(kind, seed, *name) for seed, name in chosen]
                await program.meet(batch)

    failure = _failure(all_of_them())
    if failure:
        raise AssertionError(_culprit(make, batch) or f"{failure}\nnone of the last batch alone: {batch[0]}")


def watched(program: Program) -> dict[str, Kind[Any]]:
    """What a program watches, by their plurals."""
    return {informer.kind.plural: informer.kind for informer in program.informers}


def watched_names(program: Program, kind: Kind[Any]) -> Sequence[tuple[str, str]]:
    """The names, with their namespaces, that objects of the kind may have to be read: a program that reads one of them
    is shown one at a time."""
    selections = [informer.selection for informer in program.informers if informer.kind == kind]
    for selection in selections:
        selected = selection.field_selector.removeprefix("metadata.name=")
        if selected != selection.field_selector:
            return [(selected, selection.namespace)]
    return [(name, "broken" if kind.namespaced else "") for name in SLOTS]


def _culprit(make: Callable[[], Program], batch: Sequence[Case]) -> str:
    for case in batch:

        async def alone(case: Case = case) -> None:
            program = make()
            async with program.running():
                await program.meet([case])

        failure = _failure(alone())
        if failure:
            return f"{case}\n{failure}"
    return ""


def _failure(work: Any) -> str:
    try:
        asyncio.run(work)
    except BaseException as error:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if not isinstance(error, Exception):
            raise
        return str(error) if isinstance(error, AssertionError) else "".join(traceback.format_exception(error))
    return ""


class Log(logging.Handler):
    """What a program has said since it was last asked."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        # What the API server in memory says of objects that were put behind its back is no fault of a program.
        if not record.name.startswith("koordinator.cluster"):
            self.records.append(record)

    def taken(self) -> list[tuple[int, str]]:
        taken = [(record.levelno, self.format(record)) for record in self.records]
        self.records.clear()
        return taken


@contextmanager
def logged() -> Iterator[Log]:
    root, log = logging.getLogger(), Log()
    root.addHandler(log)
    try:
        yield log
    finally:
        root.removeHandler(log)


def check_log(log: Log, cases: Sequence[Case]) -> None:
    """Nothing was taken for a fault of the program's own, and each object that cannot be decoded was named."""
    lines = log.taken()
    faults = [text for level, text in lines if level >= logging.ERROR]
    assert not faults, faults[0]
    said = "\n".join(text for _, text in lines)
    for case in cases:
        key = "/".join(filter(None, (case.namespace, case.name)))
        assert case.is_decoded or f"{case.kind.name} {key} is not readable" in said, f"{case} is not named"
