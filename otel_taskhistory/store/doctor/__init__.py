# SPDX-License-Identifier: Apache-2.0
"""The doctor: what is wrong with a history, what it means and what to do; may fix what is safe.

Without ``fix`` nothing is written, not a byte: a database in use is read through the index of its
write-ahead log without touching it, any other as immutable or from a private copy.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TypeVar

from otel_taskhistory.errors import HistoryNotFound, HistoryRefused, SchemaTooNew, TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.store import reading
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.backup import Wanted, wanted_artifacts
from otel_taskhistory.store.damage import is_damage, is_ours
from otel_taskhistory.store.doctor.content import (
    DO_DAMAGE,
    MEANS_DAMAGE,
    Content,
    Gone,
    processes_gone,
)
from otel_taskhistory.store.doctor.environment import check_environment
from otel_taskhistory.store.doctor.findings import SHOWN, Finding, Progress, Severity, some
from otel_taskhistory.store.doctor.forwards import check_forwards
from otel_taskhistory.store.doctor.limits import check_limits
from otel_taskhistory.store.doctor.pictures import check_artifacts
from otel_taskhistory.store.doctor.place import (
    check_access,
    check_aside,
    check_file_system,
    check_room,
    check_sqlite,
)
from otel_taskhistory.store.doctor.rules import check_rules
from otel_taskhistory.store.doctor.wal import check_wal, look_at_wal
from otel_taskhistory.store.header import read_header
from otel_taskhistory.store.holders import holders
from otel_taskhistory.store.schema import APPLICATION_ID, SCHEMA_VERSION
from otel_taskhistory.store.stamp import Stamp
from otel_taskhistory.store.stamp import check_artifacts as check_artifact_stamp

__all__ = ["Diagnosis", "Finding", "Severity", "examine"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was found."""

    settings: Settings
    identity: reading.Identity | None
    """None when there is no history that can be read."""
    findings: tuple[Finding, ...]
    """The worst first."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong (any more)."""
        return not any(finding.wrong for finding in self.findings)


def examine(
    settings: Settings,
    *,
    environ: Mapping[str, str] | None = None,
    quick: bool = False,
    fix: bool = False,
    progress: Progress | None = None,
    gone: Gone = processes_gone,
) -> Diagnosis:
    """Look at everything that can be wrong with a history, and around it. Raises nothing.

    Args:
        settings: where it is; the owner counts only when it was given.
        environ: environment variables to look at; the process's own by default.
        quick: leave out what takes long: reading every index of the database, the search index,
            the content of pictures.
        fix: do what is safe about what was found.
        progress: told what is being looked at.
        gone: tells the processes that are gone; see `Gone`.
    """
    tell = progress or (lambda what, done, total: None)
    findings = [*check_sqlite(), *check_environment(os.environ if environ is None else environ)]
    identity = None
    # First of all, and before this process has the database open.
    wal = look_at_wal(settings.database)
    try:
        identity = _identify(settings)
        findings += check_wal(wal)
        findings += _about_place(settings)
        findings += _about_identity(settings, identity)
        findings += _about_content(settings, quick=quick, tell=tell, gone=gone)
    except _Unusable as unusable:
        findings += [unusable.finding, *_about_place(settings)]
    if fix:
        # The writing side is loaded only where something may be written.
        from otel_taskhistory.store.doctor.repair import repair

        findings = repair(settings, findings)
    order = ("error", "warning", "note")
    findings.sort(key=lambda finding: (not finding.wrong, order.index(finding.severity)))
    return Diagnosis(settings, identity, tuple(findings))


class _Unusable(Exception):
    """There is no history that can be read; the finding says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


# --- the history itself -------------------------------------------------------------------------


def _identify(settings: Settings) -> reading.Identity:
    """Whose history it is.

    Raises:
        _Unusable: there is none, or none that can be read.
    """
    database = settings.database
    try:
        if database.stat().st_size:
            header = read_header(database)
            if (header is None or header.application_id != APPLICATION_ID) and is_ours(settings):
                raise _damaged(settings, "its header is destroyed")
            if header is None:
                raise HistoryRefused(f"{database} is not a SQLite database; {reading.ELSEWHERE}")
        identity = _read(settings, lambda connection: reading._identity(connection, database))
    except FileNotFoundError:
        # The same sentence as every reader's.
        error = _error_of(lambda: reading.Reading(database))
        raise _Unusable(_history(settings, error)) from None
    except (TaskHistoryError, OSError) as error:
        raise _Unusable(_history(settings, error)) from error
    except sqlite3.DatabaseError as error:
        raise _damaged(settings, str(error)) from error
    if settings.owner_explicit and settings.owner != identity.owner:
        raise _Unusable(
            Finding(
                "history",
                "error",
                f"{database} is the history of {identity.owner!r}, not of {settings.owner!r}",
                "An agent of another owner is refused here.",
                f"Set OTEL_TASKHISTORY_OWNER or --owner to match, or {reading.ELSEWHERE}.",
            )
        )
    return identity


def _error_of(action: Callable[[], object]) -> Exception:
    try:
        action()
    except TaskHistoryError as error:
        return error
    return TaskHistoryError("the history came back meanwhile: try again")


def _history(settings: Settings, error: Exception) -> Finding:
    if not isinstance(error, HistoryNotFound | HistoryRefused) and _has_damage(error):
        return Finding("database", "error", str(error), MEANS_DAMAGE, _cure(settings))
    meaning = ""
    if isinstance(error, SchemaTooNew):
        meaning = "This version can neither read nor write it; nothing of it is touched."
    elif isinstance(error, HistoryRefused):
        meaning = "An agent that is pointed here is refused, and nothing of it is touched."
    return Finding("history", "error", str(error), meaning)


def _has_damage(error: BaseException | None) -> bool:
    while error is not None:
        if is_damage(error) or "is damaged" in str(error):
            return True
        error = error.__cause__
    return False


def _damaged(settings: Settings, why: str) -> _Unusable:
    return _Unusable(
        Finding(
            "database",
            "error",
            f"the history at {settings.database} is damaged: {why}",
            MEANS_DAMAGE,
            _cure(settings),
        )
    )


def _cure(settings: Settings) -> str:
    with suppress(OSError):
        if is_ours(settings):
            return DO_DAMAGE
    return (
        "Nothing proves that it is a history, so agents are refused here and leave it as it is:"
        " move it away, or point OTEL_TASKHISTORY_DIRECTORY somewhere else."
    )


def _about_identity(settings: Settings, identity: reading.Identity) -> Iterable[Finding]:
    stamp = Stamp(identity.owner, identity.history_id, identity.service_name)
    try:
        check_artifact_stamp(settings.artifacts, stamp, settings.database, identity.owner)
    except (HistoryRefused, OSError) as error:
        yield Finding(
            "artifact folder",
            "error",
            str(error),
            "An agent is refused here: its pictures would mix with those of another history.",
        )
    if identity.schema_version > SCHEMA_VERSION:
        yield Finding(
            "schema",
            "warning",
            f"the history has schema version {identity.schema_version}, this version of"
            f" otel-taskhistory writes {SCHEMA_VERSION}",
            "It can be read, but an agent with this version is refused.",
            "Upgrade otel-taskhistory (pip install --upgrade otel-taskhistory).",
        )
    using = sorted({str(holder) for holder in holders(settings.database)})
    if using:
        yield Finding(
            "in use",
            "note",
            f"open in {', '.join(using[:SHOWN])}",
            count=len(using),
            items=some(using),
        )


def _about_place(settings: Settings) -> list[Finding]:
    checks: tuple[Callable[[Settings], Iterable[Finding]], ...] = (
        check_access,
        check_file_system,
        check_room,
        check_aside,
    )
    found: list[Finding] = []
    for check in checks:
        try:
            found += check(settings)
        except OSError as error:
            found.append(_unreadable(error))
    return found


def _about_content(settings: Settings, *, quick: bool, tell: Progress, gone: Gone) -> list[Finding]:
    content = Content(settings.database, quick, tell, gone)
    try:
        found = _read(settings, content.findings)
        if any(finding.severity == "error" and finding.check == "database" for finding in found):
            return found
        found += _read(settings, lambda connection: list(check_limits(connection, settings)))
        found += _read(settings, lambda connection: list(check_rules(connection)))
        found += _read(settings, lambda connection: list(check_forwards(connection)))
        wanted, known = _read(settings, _rows_of_artifacts)
        folder = ArtifactFolder(settings.artifacts)
        found += check_artifacts(folder, wanted, known, quick=quick, tell=tell)
    except TaskHistoryError as error:
        return [_history(settings, error)]
    except sqlite3.DatabaseError as error:
        return [_damaged(settings, str(error)).finding]
    except OSError as error:
        found.append(_unreadable(error))
    return found


def _rows_of_artifacts(connection: sqlite3.Connection) -> tuple[list[Wanted], set[str]]:
    # Files that are about to go are no riddle, see `check_limits`.
    paths = connection.execute("SELECT path FROM _artifacts UNION ALL SELECT path FROM _unlinks")
    known = {row[0] for row in paths}
    wanted = wanted_artifacts(connection)
    return wanted, known | {artifact.path for artifact in wanted}


def _unreadable(error: OSError) -> Finding:
    return Finding(
        "access",
        "error",
        f"{error.filename or 'a file'} cannot be read ({error.strerror})",
        "",
        "Run the doctor as the user that the agent runs as.",
    )


def _read(settings: Settings, query: Callable[[sqlite3.Connection], T]) -> T:
    """Run a query within one read transaction that leaves no trace."""
    real = os.path.realpath(settings.database)
    if all(os.path.exists(real + suffix) for suffix in ("-wal", "-shm")):
        # A reader notes in the index of the log up to where it needs it; this one does without,
        # and where no writer has left an index that counts it makes one in memory.
        uri = f"{settings.database.as_uri()}?mode=ro&readonly_shm=1"
        connection = sqlite3.Connection(
            uri, uri=True, timeout=settings.busy_timeout, isolation_level=None
        )
        with closing(connection):
            connection.text_factory = lambda value: value.decode("utf-8", "replace")
            connection.execute("PRAGMA query_only = 1")
            try:
                connection.execute("BEGIN")
                connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
            except sqlite3.OperationalError:
                pass  # a rollback to be done first, or no right to read the index
            else:
                return query(connection)
    with closing(
        reading.Reading(settings.database, busy_timeout=settings.busy_timeout)
    ) as readable:
        return readable.read(query)
