"""Reads the parts of a bundle, several at once and each for itself: what one lacks costs no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.codec import DecodeError
from koordinator.base.errors import KoordinatorError
from koordinator.cli.explain_failure import ForbiddenError, missing_permission
from koordinator.cli.support_bundle.anonymity import Names
from koordinator.cli.support_bundle.archive import Archive, BundleError
from koordinator.cli.support_bundle.redaction import Redactor
from koordinator.kube.errors import ApiStatusError

_CONCURRENCY: Final = 6
"""Requests at once: a bundle is made while a cluster is in trouble."""
_CUT: Final = "its beginning is cut off: {kept} of {whole} bytes"


@dataclass(frozen=True, slots=True)
class Content:
    """What was read: a document for JSON, or a text. ``note`` says what is missing in it."""

    value: Any
    note: str = ""
    ours: bool = False
    """Of objects, whether they are those of the installation."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the bundle to be."""

    path: str
    says: str
    read: Callable[[], Awaitable[Content]]
    public: bool = False
    """Whether it names nothing that --anonymize would replace."""


@dataclass(slots=True)
class Collector:
    """``deadline`` is by the clock of the event loop; what is not read by then is left out.

    ``names`` is None unless names are to be replaced. ``show`` is told of each part."""

    archive: Archive
    redactor: Redactor
    names: Names | None
    most_bytes: int
    """Of one file."""
    deadline: float
    show: Callable[[str], None]
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CONCURRENCY))

    async def collect(self, parts: Iterable[Part]) -> list[Any]:
        """Read and write all of them; what each has read, uncleaned, in their order, and None for what is left out."""
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self._collect(part), name=part.path) for part in parts]
        except ExceptionGroup as group:
            # Of a file that cannot be written all say the same.
            raise group.exceptions[0] from None
        return [task.result() for task in running]

    async def _collect(self, part: Part) -> Any:
        if self.names is not None and self.names.unknown and not part.public:
            self._leave_out(part, f"its names cannot be replaced: {self.names.unknown}")
            return None
        try:
            async with asyncio.timeout_at(self.deadline), self._slots:
                content = await part.read()
            self._write(part, content)
        except TimeoutError:
            self._leave_out(part, "time was up: --timeout")
            return None
        except BundleError:
            raise
        except Exception as error:
            self._leave_out(part, reason(error))
            return None
        return content.value

    def _write(self, part: Part, content: Content) -> None:
        """Clean it and put it into the archive."""
        text, note = self._cleaned(content), content.note
        whole = len(text)
        if isinstance(content.value, str) and whole > self.most_bytes:
            text = text[-self.most_bytes :]
            note = "; ".join(filter(None, (note, _CUT.format(kept=len(text), whole=whole))))
        path, says, note = (self._cleaned_name(each) for each in (part.path, part.says, note))
        entry = self.archive.add(path, says, text, note)
        if entry is not None:
            self.show(f"read {entry.path} ({entry.size} bytes)")

    def _leave_out(self, part: Part, why: str) -> None:
        path, says, why = (self._cleaned_name(each) for each in (part.path, part.says, self.redactor.text(why)))
        self.archive.leave_out(path, says, why)
        self.show(f"left out {path}: {' '.join(why.split())}")

    def _cleaned(self, content: Content) -> str:
        if isinstance(content.value, str):
            text = self.redactor.text(content.value)
            return self.names.text(text) if self.names is not None else text
        document = self.redactor.document(content.value, ours=content.ours)
        if self.names is not None:
            document = self.names.document(document, ours=content.ours)
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

    def _cleaned_name(self, text: str) -> str:
        return self.names.text(text) if self.names is not None else text


def reason(error: Exception) -> str:
    """Why a part is left out, with the permission that is missing where that is why."""
    permission = ""
    if isinstance(error, ForbiddenError):
        permission = error.permission
    elif isinstance(error, ApiStatusError):
        if error.is_not_found:
            return "there is none" if error.details.name else "this cluster does not have its kind"
        permission = missing_permission(error.message) if error.is_forbidden else ""
    if permission:
        return f"you lack the permission to {permission}"
    if isinstance(error, KoordinatorError | DecodeError | UnicodeError | OSError) and str(error):
        return str(error)
    if isinstance(error, RecursionError):
        return "it is nested too deep to be looked through"
    return f"a defect of this command: {type(error).__name__}: {error}"
