"""Reads the records that koord-manager keeps, and says what may be missing from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from koordinator.api.audit_answer import AUDIT_PATH, AuditAnswer, Coverage, KeptRecord
from koordinator.api.codec import DecodeError, convert
from koordinator.api.timestamps import format_time
from koordinator.cli.explain_failure import ExplainError, ForbiddenError, UnknownToProgramError, left_out
from koordinator.cli.explain_source import ProgramEndpoint, fetch
from koordinator.cli.session import Session
from koordinator.cli.timeline import moment_of_record

_PAGE: Final = 1000


async def read_records(session: Session, manager: ProgramEndpoint, query: Mapping[str, str]) -> AuditAnswer:
    """All pages as one, the newest record first. Raises ExplainError."""
    found: list[KeptRecord] = []
    position = ""
    while True:
        page = {**query, "limit": str(_PAGE), **({"next": position} if position else {})}
        try:
            answer = convert(await fetch(session, manager, AUDIT_PATH, page), AuditAnswer)
        except UnknownToProgramError as error:
            raise ExplainError(
                "the koord-manager that was queried keeps no audit: it is of another version, or runs with "
                "--audit-max-megabytes=0"
            ) from error
        except DecodeError as error:
            raise ExplainError(f"what was queried answers with no audit records ({error})") from error
        found += answer.records
        position = answer.next
        if not position:
            return AuditAnswer(records=found, coverage=answer.coverage)


def coverage_sentences(coverage: Coverage, query: Mapping[str, str]) -> Iterator[str]:
    """What may be missing from the answer to a query from ``since`` on."""
    since = datetime.fromisoformat(query["since"]) if "since" in query else None
    until = datetime.fromisoformat(query["until"]) if "until" in query else None
    if coverage.problem:
        yield f"nothing can be kept right now: {coverage.problem}."
    if coverage.since is None:
        yield "nothing has been kept yet."
    elif since is None or coverage.since > since:
        where = ", in memory: a restart of koord-manager, or another leader, forgets them" if coverage.in_memory else ""
        yield f"records are kept since {format_time(coverage.since)}{where}."
    for gap in coverage.gaps:
        if (since is None or gap.until > since) and (until is None or gap.since < until):
            yield f"records may be missing from {format_time(gap.since)} to {format_time(gap.until)}: {gap.why}."
    for drop in coverage.drops:
        if since is None or drop.until >= since:
            of = f"of the namespace {drop.namespace}" if drop.namespace else "about nodes"
            yield (
                f"the store was full: {drop.records} records {of} up to {format_time(drop.until)} were deleted "
                "(--audit-max-megabytes)."
            )
    if coverage.lost:
        yield f"{coverage.lost} records were lost while nothing could be kept."
    if coverage.refused:
        yield f"{coverage.refused} Events carried a record that could not be taken."


@dataclass(frozen=True, slots=True)
class KeptOfPod:
    """The records of a pod, and why there may be more: sentences for what may not be read, and anything else."""

    records: Sequence[KeptRecord] = ()
    left_out: Sequence[str] = ()
    missing: str = ""


async def records_of_pod(
    session: Session, manager: ProgramEndpoint, key: str, metadata: Mapping[str, Any]
) -> KeptOfPod:
    """Those of this very pod, whoever had its name before."""
    given = {"pod": key, "uid": metadata.get("uid"), "since": metadata.get("creationTimestamp")}
    query = {name: str(value) for name, value in given.items() if value}
    try:
        answer = await read_records(session, manager, query)
    except ForbiddenError as error:
        return KeptOfPod(left_out=[left_out("what koord-manager has kept of it", error)])
    except ExplainError as error:
        return KeptOfPod(missing=str(error))
    return KeptOfPod(answer.records, missing=answer.coverage.problem)


async def last_of_pod(session: Session, manager: ProgramEndpoint, key: str) -> str:
    """``; at TIME PROGRAM evicts it …``: the last that is known of a pod that is gone; empty where nothing is."""
    try:
        answer = await read_records(session, manager, {"pod": key})
    except ExplainError:
        # Who asks learns that there is no such pod; nothing else was sure to be had.
        return ""
    if not answer.records:
        return ""
    moment = moment_of_record(answer.records[0].record, key)
    told = f"{moment.program} {moment.what}" + (f" ({moment.why})" if moment.why else "")
    return f"; at {moment.time[:19]}Z {told}: koord audit --pod {key} --since 168h says more"
