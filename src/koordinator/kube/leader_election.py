"""Leader election by a Lease: one leader at a time, compatible with client-go.

The protocol is client-go's: the holder renews; the other candidates record, by their own clock, when they last saw the
lease change, and acquire it once the holder's ``leaseDurationSeconds`` have passed since then. Two rules are stricter
here. A leader counts its renew deadline from the moment at which it *sent* the last successful renewal, not from the
start of the next one, so that no slow response can extend its term beyond the time after which others may acquire the
lease; and it steps down at once when it sees that another holder has the lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from random import Random
from typing import Any, Final

import msgspec

from koordinator.api.kinds import LEASES
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Lease, LeaseSpec
from koordinator.api.timestamps import format_micro_time
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.metrics import Metrics
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.interface import Client
from koordinator.kube.lacks import Lack, lack_for_lease
from koordinator.kube.leader_election_config import JITTER_FACTOR
from koordinator.kube.leader_election_config import LeaderElectionConfig as LeaderElectionConfig
from koordinator.kube.leader_election_config import make_identity as make_identity
from koordinator.kube.lease_watchdog import LeaseWatchdog, NoWatchdog

# The Lease that candidates contend for: read as a whole, written with the resourceVersion at which it was read.
#
# It is replaced (PUT), not patched, as in client-go: the roles that clusters grant for leases have only ``update``.


class LeaseLock:
    """One Lease by name, and the version that was last read or written."""

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        self._client = client
        self._lease = Lease(
            api_version=LEASES.api_version, kind=LEASES.name, metadata=ObjectMeta(name=name, namespace=namespace)
        )

    def __str__(self) -> str:
        return self._lease.metadata.key

    @property
    def lease(self) -> Lease:
        return self._lease

    async def read(self) -> LeaseSpec:
        """Read the lease. Raises ApiStatusError (not found among others) or TransportError."""
        metadata = self._lease.metadata
        self._lease = await self._client.get(LEASES, metadata.name, metadata.namespace)
        return self._lease.spec

    async def create(self, spec: LeaseSpec) -> None:
        """Create the lease. Raises ApiStatusError if it exists already."""
        name, namespace = self._lease.metadata.name, self._lease.metadata.namespace
        lease = Lease(
            api_version=LEASES.api_version,
            kind=LEASES.name,
            metadata=ObjectMeta(name=name, namespace=namespace),
            spec=spec,
        )
        self._lease = await self._client.create(LEASES, lease, namespace)

    async def update(self, spec: LeaseSpec) -> None:
        """Write the lease unless it changed since it was last read. Raises ApiStatusError (conflict among others)."""
        metadata = self._lease.metadata
        lease = msgspec.structs.replace(self._lease, api_version=LEASES.api_version, kind=LEASES.name, spec=spec)
        self._lease = await self._client.update(LEASES, lease, metadata.name, metadata.namespace)


logger = logging.getLogger(__name__)


_RELEASE_SECONDS: Final = 2.0
"""A lease that is not released expires by itself; a program that is stopped must not wait long for a server."""
_BEFORE_THE_END: Final = 0.9
"""After this fraction of the remaining time, work that does not stop is logged; at its end the process is killed."""


class _Attempt(Enum):
    SUCCEEDED = auto()
    HELD_BY_OTHER = auto()
    FAILED = auto()


class LeaderElector:
    """A candidate for one lease. ``run`` once."""

    def __init__(
        self,
        client: Client,
        config: LeaderElectionConfig,
        *,
        clock: Clock,
        random: Random,
        metrics: Metrics | None = None,
        on_new_leader: Callable[[str], None] | None = None,
        announce: Callable[[str], None] | None = None,
        watchdog: LeaseWatchdog | None = None,
    ) -> None:
        """``announce`` is called with the text of each LeaderElection event.

        ``watchdog`` kills the process if the work has not stopped by the time at which another candidate may lead.
        """
        self._config = config
        self._clock = clock
        self._random = random
        self._lock = LeaseLock(client, config.name, config.namespace)
        self._lack = Lack(f"lease {self._lock}")
        self._observed = LeaseSpec()
        self._observed_at = float("-inf")
        self._renewed_at = float("-inf")
        self._leading = False
        self._reported_leader = ""
        self._on_new_leader = on_new_leader
        self._announce = announce
        self._watchdog = watchdog or NoWatchdog()
        metrics = metrics or Metrics()
        self._status = metrics.gauge(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master."
            " 'name' is the string used to identify the lease. Please make sure to group by name.",
            ("name",),
        ).labels(config.name)
        self._slow_path = metrics.counter(
            "leader_election_slowpath_total",
            "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the"
            " lease. Please make sure to group by name.",
            ("name",),
        ).labels(config.name)

    @property
    def leader(self) -> str:
        """The last observed holder of the lease; empty if there was none."""
        return self._observed.holder_identity or ""

    @property
    def is_leading(self) -> bool:
        """Whether this candidate leads now; correct even if a blocked event loop delays the work's cancellation."""
        return self._leading and self._clock.monotonic() < self._term_end

    def check(self, tolerance: float = 20.0) -> str:
        """Health check: return an error message if the term ended more than ``tolerance`` seconds ago, else ""."""
        overdue = self._clock.monotonic() - self._renewed_at - self._config.lease_duration
        if self._leading and overdue > tolerance:
            return f"failed election to renew leadership on lease {self._config.name}"
        return ""

    async def run(
        self, on_started: Callable[[], Coroutine[Any, Any, None]], on_stopped: Callable[[], None] | None = None
    ) -> None:
        """Acquire the lease, run the work while holding it, and return once the lease is lost or the work has ended.

        The work is cancelled and awaited before this method returns, raises or releases the lease. ``on_stopped`` is
        always called. Exceptions of the work are raised in an ExceptionGroup.
        """
        try:
            await self._acquire()
            await self._lead(on_started)
        finally:
            if on_stopped is not None:
                on_stopped()

    async def _acquire(self) -> None:
        config = self._config
        logger.info("attempting to acquire leader lease %s as %s", self._lock, config.identity)
        while await self._attempt(config.renew_deadline) is not _Attempt.SUCCEEDED:
            await self._clock.sleep(config.retry_period * (1 + JITTER_FACTOR * self._random.random()))
        logger.info("acquired lease %s", self._lock)

    async def _lead(self, on_started: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._leading = True
        self._watchdog.end_at(self._lease_end)
        self._status.set(1)
        self._record_event(f"{self._config.identity} became leader")
        try:
            async with asyncio.TaskGroup() as tasks:
                work = tasks.create_task(on_started(), name=f"leader {self._lock}")
                renewing = tasks.create_task(self._renew_then_stop(work), name=f"renew {self._lock}")
                work.add_done_callback(lambda _: renewing.cancel())
        finally:
            self._leading = False
            self._watchdog.stop()
            self._status.set(0)
            self._record_event(f"{self._config.identity} stopped leading")
            if self._config.release_on_cancel:
                await self._release()

    async def _renew_then_stop(self, work: asyncio.Task[None]) -> None:
        await self._renew()
        work.cancel()
        remaining = self._lease_end - self._clock.monotonic()
        try:
            await within(self._clock, max(0.0, _BEFORE_THE_END * remaining), _ended(work))
        except TimeoutError:
            logger.critical(
                "the work of the leader of %s does not stop; this process is killed when its lease ends", self._lock
            )

    async def _renew(self) -> None:
        """Renew until the term ends or another holder has the lease."""
        while True:
            await self._clock.sleep(self._renewal_pause())
            remaining = self._term_end - self._clock.monotonic()
            if remaining <= 0:
                logger.warning("lost lease %s: not renewed within %gs", self._lock, self._config.renew_deadline)
                return
            # Half of the deadline, so that after a hanging request there is time for another attempt.
            if await self._attempt(min(remaining, self._config.renew_deadline / 2)) is _Attempt.HELD_BY_OTHER:
                logger.warning("lost lease %s: it is held by %s", self._lock, self.leader)
                return

    def _renewal_pause(self) -> float:
        """Return the seconds to the next attempt: fewer towards the term's end, so that no attempt just misses it."""
        retry, remaining = self._config.retry_period, self._term_end - self._clock.monotonic()
        return max(0.0, min(retry, max(remaining / 2, retry / 4), remaining))

    @property
    def _term_end(self) -> float:
        return self._renewed_at + self._config.renew_deadline

    @property
    def _lease_end(self) -> float:
        """Return the time from which another candidate may lead: the lease's duration is in whole seconds."""
        return self._renewed_at + int(self._config.lease_duration)

    async def _attempt(self, seconds: float) -> _Attempt:
        try:
            attempt = await within(self._clock, seconds, self._acquire_or_renew())
        except (KubeError, TimeoutError) as error:
            self._log_failure(error, seconds)
            attempt = _Attempt.FAILED
        else:
            self._lack.is_over()
        self._report_leader()
        return attempt

    def _log_failure(self, error: KubeError | TimeoutError, seconds: float) -> None:
        lack = ""
        if isinstance(error, ApiStatusError):
            lack = lack_for_lease(error, self._config.namespace, self._config.name)
        if lack:
            self._lack.found(lack)
        else:
            reason = str(error) or f"no response within {seconds:g}s"
            logger.warning("lease %s could not be read or written: %s", self._lock, reason)

    async def _acquire_or_renew(self) -> _Attempt:
        if self._holds_it and self._clock.monotonic() < self._valid_until and await self._renewed_optimistically():
            return _Attempt.SUCCEEDED
        try:
            spec = await self._lock.read()
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            if self._leading:
                # Another candidate may have recreated it meanwhile; then creating fails, and the next read shows the
                # new holder.
                logger.warning("lease %s was deleted while we lead", self._lock)
            await self._write(self._lock.create, self._next_spec(None))
            return _Attempt.SUCCEEDED
        self._observe(spec)
        if self._holds_it:
            self._slow_path.inc()
        elif self._leading or (self.leader and self._clock.monotonic() < self._valid_until):
            return _Attempt.HELD_BY_OTHER
        await self._write(self._lock.update, self._next_spec(spec))
        return _Attempt.SUCCEEDED

    async def _renewed_optimistically(self) -> bool:
        """Renew with the version that was last seen, which normally no other candidate has changed."""
        try:
            await self._write(self._lock.update, self._next_spec(self._observed))
        except KubeError as error:
            logger.info("lease %s: optimistic renewal failed, reading it: %s", self._lock, error)
            return False
        return True

    async def _write(self, write: Callable[[LeaseSpec], Coroutine[Any, Any, None]], spec: LeaseSpec) -> None:
        sent = self._clock.monotonic()
        await write(spec)
        self._observed, self._observed_at, self._renewed_at = spec, self._clock.monotonic(), sent
        if self._leading:
            self._watchdog.end_at(self._lease_end)

    def _observe(self, spec: LeaseSpec) -> None:
        if spec != self._observed:
            self._observed, self._observed_at = spec, self._clock.monotonic()

    @property
    def _holds_it(self) -> bool:
        return self._observed.holder_identity == self._config.identity

    @property
    def _valid_until(self) -> float:
        return self._observed_at + (self._observed.lease_duration_seconds or 0)

    def _next_spec(self, old: LeaseSpec | None) -> LeaseSpec:
        now = format_micro_time(self._clock.now())
        acquired, transitions = now, 0
        if old is not None:
            transitions = old.lease_transitions or 0
            if old.holder_identity == self._config.identity:
                acquired = old.acquire_time or now
            else:
                transitions += 1
        return LeaseSpec(
            holder_identity=self._config.identity,
            lease_duration_seconds=int(self._config.lease_duration),
            acquire_time=acquired,
            renew_time=now,
            lease_transitions=transitions,
        )

    async def _release(self) -> None:
        try:
            await within(self._clock, min(_RELEASE_SECONDS, self._config.renew_deadline), self._give_up())
        except (KubeError, TimeoutError) as error:
            logger.warning("lease %s could not be released, it will expire: %s", self._lock, error)

    async def _give_up(self) -> None:
        spec = await self._lock.read()
        self._observe(spec)
        if not self._holds_it:
            return
        now = format_micro_time(self._clock.now())
        released = LeaseSpec(
            holder_identity="",
            lease_duration_seconds=1,
            acquire_time=now,
            renew_time=now,
            lease_transitions=spec.lease_transitions or 0,
        )
        await self._lock.update(released)
        self._observe(released)
        logger.info("released lease %s", self._lock)

    def _report_leader(self) -> None:
        if self.leader == self._reported_leader:
            return
        self._reported_leader = self.leader
        logger.info("lease %s: the leader is %s", self._lock, self.leader or "nobody")
        if self._on_new_leader is not None:
            self._on_new_leader(self.leader)

    def _record_event(self, text: str) -> None:
        if self._announce is not None:
            self._announce(text)


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})
