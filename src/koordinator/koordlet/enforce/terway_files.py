"""Keeps the two files of network QoS for Terway's daemon, and removes them when the NodeSLO switches that off.

Each is written beside its place and renamed: the daemon watches the folder, and never sees half a file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from koordinator.base.errors import KoordinatorError
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.enforce.decision_report import record_of_node
from koordinator.koordlet.enforce.strategies.snapshot import Problem, Snapshot
from koordinator.koordlet.enforce.strategies.terway_qos import TerwayDecision, decide
from koordinator.koordlet.report.audit.log import AuditLog
from koordinator.node.errors import Unavailable
from koordinator.node.features import probe_terway
from koordinator.node.host import Host

logger = logging.getLogger(__name__)

OWNER: Final = "TerwayQoS"
NODE_FILE: Final = "global_bps_config"
POD_FILE: Final = "pod.json"
_UNFINISHED: Final = ".tmp"
_MAX_BYTES: Final = 16 << 20
_AUDIT_REASON: Final = "netqos reconcile"


class TerwayFilesError(KoordinatorError):
    """The folder, or a file in it, cannot be read or written."""


class TerwayQoS:
    """Call ``reconcile`` now and then."""

    def __init__(
        self,
        host: Host,
        snapshot: Callable[[], Snapshot],
        report: Callable[[str, tuple[Problem, ...]], None],
        audit: AuditLog | None,
        *,
        observe_only: bool,
    ) -> None:
        """``report`` records events for settings that cannot be applied."""
        self._host = host
        self._folder = Path(host.var_lib_terway, "qos")
        self._snapshot = snapshot
        self._report = report
        self._audit = audit
        self._observe_only = observe_only
        self._said = SaidOnce(logger)

    def only_observe(self, is_only: bool) -> None:
        """Whether no file is changed from now on."""
        self._observe_only = is_only

    async def reconcile(self) -> None:
        """Bring the files to what the NodeSLO and the pods say now. TerwayFilesError if the disk does not take it."""
        decision = decide(self._snapshot())
        if decision is not None:
            with self._said.round():
                self._round(decision)

    def _round(self, decision: TerwayDecision) -> None:
        state = probe_terway(self._host)
        if isinstance(state, Unavailable):
            # Where it is not wanted, nothing is missing.
            if decision.node is not None:
                self._said.say(f"network QoS through Terway is not available: {state}")
            return
        self._report(OWNER, decision.problems)
        self._keep(NODE_FILE, decision.node)
        self._keep(POD_FILE, decision.pods)

    def _keep(self, name: str, content: str | None) -> None:
        path = self._folder / name
        if self._content(path) == content:
            return
        if self._observe_only:
            self._said.say(f"observe only: {path} would be {'removed' if content is None else 'written'}")
            return
        try:
            if content is None:
                path.unlink(missing_ok=True)
            else:
                self._folder.mkdir(mode=0o755, exist_ok=True)
                unfinished = path.with_name(name + _UNFINISHED)
                unfinished.write_text(content)
                os.replace(unfinished, path)
        except OSError as error:
            raise TerwayFilesError(f"{path}: {error.strerror}") from error
        message = f"remove {path}" if content is None else f"update {path} to {content}"
        logger.debug("%s: %s", OWNER, message)
        record_of_node(self._audit, _AUDIT_REASON, message)

    def _content(self, path: Path) -> str | None:
        """None if there is no such file, or none of ours."""
        try:
            with path.open("rb") as file:
                return file.read(_MAX_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TerwayFilesError(f"{path}: {error.strerror}") from error
