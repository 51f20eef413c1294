"""What the page asks again and again: the programs, about what they alone know, and the API server, whether it is
there. Each question fills a table; one that fails says so there, and leaves what was known before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NoReturn

from koordinator.api.audit_answer import AUDIT_PATH, AuditAnswer
from koordinator.api.codec import DecodeError, convert, decode
from koordinator.api.timestamps import format_time
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.cli.audit import row_of
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_failure import ExplainError
from koordinator.cli.explain_source import fetch
from koordinator.cli.explanation import Sources
from koordinator.cli.get import GANGS_PATH
from koordinator.cli.page.board import Row, Table
from koordinator.cli.page.rows import without_age
from koordinator.cli.session import Session
from koordinator.kube.client import KubeClient

_CONTACT_SECONDS: Final = 2.0
_GANGS_SECONDS: Final = 5.0
_AUDIT_SECONDS: Final = 5.0
_AUDIT_RECORDS: Final = 200
_AUDIT_TIME: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Question:
    """Asked every so many seconds, for the rows of a table."""

    table: Table
    seconds: float
    ask: Callable[[], Awaitable[Mapping[str, Row]]]

    async def repeat(self, clock: Clock) -> NoReturn:
        """Ask until cancelled."""
        while True:
            try:
                self.table.replace(await self.ask())
                self.table.problem = ""
            except KoordinatorError as error:
                self.table.problem = str(error)
            await clock.sleep(self.seconds)


def questions_of(
    cluster: Cluster, client: KubeClient, sources: Sources, session: Session, clock: Clock
) -> Sequence[Question]:
    """All that there are."""

    async def contact() -> Mapping[str, Row]:
        version = decode(await client.raw("GET", "/version"), dict[str, Any])
        return {
            "api": {
                "cluster": cluster.name,
                "server": cluster.server,
                "context": cluster.context,
                "kubernetes": version.get("gitVersion", ""),
            }
        }

    async def gangs() -> Mapping[str, Row]:
        found = await fetch(session, sources.scheduler, GANGS_PATH)
        try:
            return {gang["name"]: _gang_row(gang) for gang in convert(found, dict[str, dict[str, Any]]).values()}
        except (DecodeError, KeyError, ValueError) as error:
            raise ExplainError(f"what was queried lists no gangs; is that a koord-scheduler? ({error})") from error

    async def audit() -> Mapping[str, Row]:
        query = {"since": format_time(clock.now() - _AUDIT_TIME), "limit": str(_AUDIT_RECORDS)}
        try:
            answer = convert(await fetch(session, sources.manager, AUDIT_PATH, query), AuditAnswer)
        except DecodeError as error:
            raise ExplainError(f"what was queried answers with no audit records ({error})") from error
        return {each.event: row_of(each.record) for each in answer.records}

    return (
        Question(Table("contact"), _CONTACT_SECONDS, contact),
        Question(Table("gangs"), _GANGS_SECONDS, gangs),
        Question(Table("audit"), _AUDIT_SECONDS, audit),
    )


def _gang_row(gang: Mapping[str, Any]) -> Row:
    row = without_age("gangs", gang, gang.get("createTime") or "")
    return row | {name: int(row[name] or 0) for name in ("needs", "pods", "pending", "waiting", "bound")}
