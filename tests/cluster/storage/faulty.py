"""A database whose statements fail on demand, in place of disks that do."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

FULL = sqlite3.SQLITE_FULL
IO_ERROR = sqlite3.SQLITE_IOERR_FSYNC


def sqlite_error(code: int) -> sqlite3.Error:
    """As SQLite raises it."""
    error = sqlite3.OperationalError({FULL: "database or disk is full"}.get(code, "disk I/O error"))
    error.sqlite_errorcode = code
    error.sqlite_errorname = {FULL: "SQLITE_FULL"}.get(code, "SQLITE_IOERR_FSYNC")
    return error


@dataclass
class Fault:
    """Statements that start with ``statement`` fail, ``times`` of them, the first ``skip`` excepted."""

    statement: str
    code: int = IO_ERROR
    times: int = 1
    skip: int = 0
    executed: bool = False
    """The statement does its work all the same: only its success is not told."""

    def applies(self, sql: str) -> bool:
        if not self.times or not sql.lstrip().startswith(self.statement):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


@dataclass
class Disk:
    """Hands out connections; their statements go through ``faults``."""

    faults: list[Fault] = field(default_factory=list)
    refuses: bool = False
    """No connection can be made."""
    connections: list[sqlite3.Connection] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    opened: Callable[[sqlite3.Connection], None] = lambda connection: None

    def connect(self, database: Any, **options: Any) -> sqlite3.Connection:
        if self.refuses:
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_CANTOPEN, "SQLITE_CANTOPEN"
            raise error
        connection = sqlite3.connect(database, factory=_Connection, **options)
        self.connections.append(connection)
        self.opened(connection)
        assert isinstance(connection, _Connection)
        connection.disk = self
        return connection

    def fail(self, statement: str, **options: Any) -> None:
        self.faults.append(Fault(statement, **options))

    def recover(self) -> None:
        self.faults.clear()
        self.refuses = False


class _Connection(sqlite3.Connection):
    disk: Disk | None = None

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        return self._through(sql, lambda: super(_Connection, self).execute(sql, parameters))

    def executemany(self, sql: str, parameters: Iterable[Any]) -> sqlite3.Cursor:
        return self._through(sql, lambda: super(_Connection, self).executemany(sql, parameters))

    def _through(self, sql: str, work: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        if self.disk is None:
            return work()
        self.disk.statements.append(sql)
        fault = next((fault for fault in self.disk.faults if fault.applies(sql)), None)
        if fault is None:
            return work()
        if fault.executed:
            work()
        raise sqlite_error(fault.code)
