# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The journal: the durable record on a VM of what was drained, for which event, and how far it got."""

import contextlib
import hashlib
import json
import os
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ._document import clean_value, format_time, name_key, parse_time, quote
from ._errors import InputError, JournalError
from ._safe_files import (
    check_directory,
    check_space,
    locked,
    read_json,
    remove,
    remove_stale_temporaries,
    write_json,
)

DEFAULT_DIRECTORY = "/var/lib/azops-maintenance/journal"
FORMAT = 1
DRAINING = "draining"
APPROVED = "approved"
STARTED = "started"
CLOSED = "closed"
OPEN_PHASES = (DRAINING, "drained", "drain_failed", APPROVED, STARTED, "gone", "restoring", "restore_failed")
PHASES = OPEN_PHASES + (CLOSED,)
KEEP_CLOSED_FOR = timedelta(days=30)
KEEP_CLOSED = 200
SUFFIX = ".json"


class Subject(NamedTuple):
    """What an entry is about: an event and one VM that it hits."""

    event_id: str
    vm: str
    event_type: str = "Unknown"
    resources: Tuple[str, ...] = ()
    not_before: Optional[str] = None

    @property
    def file_name(self) -> str:
        key = json.dumps([name_key(self.event_id), name_key(self.vm)])
        return hashlib.sha256(key.encode("ascii")).hexdigest()[:40] + SUFFIX


class Step(NamedTuple):
    """A phase that was entered: when, and by whom."""

    phase: str
    at: str
    actor: str


class Change(NamedTuple):
    """One thing that a drain changed, as facts from which it can be undone."""

    number: int
    backend: str
    facts: Dict[str, Any]
    made_at: str
    undone_at: Optional[str] = None


class Entry(NamedTuple):
    """All that is known of one VM's way through one event."""

    subject: Subject
    steps: Tuple[Step, ...]
    changes: Tuple[Change, ...] = ()
    approved_at: Optional[str] = None
    approved_by: Optional[str] = None
    closed_because: Optional[str] = None

    @property
    def phase(self) -> str:
        return self.steps[-1].phase

    @property
    def is_open(self) -> bool:
        return self.phase != CLOSED

    @property
    def open_changes(self) -> Tuple[Change, ...]:
        """What is still to be undone, newest first."""
        return tuple(change for change in reversed(self.changes) if change.undone_at is None)

    def as_dict(self) -> Dict[str, Any]:
        entry: Dict[str, Any] = dict(self.subject._asdict(), resources=list(self.subject.resources))
        entry.update(
            phase=self.phase,
            is_open=self.is_open,
            steps=[dict(step._asdict()) for step in self.steps],
            changes=[dict(change._asdict()) for change in self.changes],
            approved_at=self.approved_at,
            approved_by=self.approved_by,
            closed_because=self.closed_because,
        )
        return entry


class Damaged(NamedTuple):
    """A file of the journal that cannot be understood."""

    file: str
    reason: str


class Snapshot(NamedTuple):
    """The whole journal at one moment, oldest entry first."""

    entries: Tuple[Entry, ...]
    damaged: Tuple[Damaged, ...]

    def as_dict(self) -> Dict[str, Any]:
        return {
            "entries": [entry.as_dict() for entry in self.entries],
            "damaged": [dict(file._asdict()) for file in self.damaged],
        }


def utc_now() -> datetime:
    return datetime.now(timezone.utc)


class Journal:
    """The entries in one directory."""

    def __init__(
        self, directory: str = DEFAULT_DIRECTORY, now: Callable[[], datetime] = utc_now, dry_run: bool = False
    ) -> None:
        self.directory = directory
        self._now = now
        self._dry_run = dry_run

    def read(self) -> Snapshot:
        """Every entry. A damaged file is reported and does not hide the others."""
        entries: List[Entry] = []
        damaged: List[Damaged] = []
        for name in self._file_names():
            try:
                entries.append(self._load(name))
            except FileNotFoundError:
                continue
            except (ValueError, OSError) as error:
                damaged.append(Damaged(os.path.join(self.directory, name), str(error)))
        entries.sort(key=lambda entry: (entry.steps[0].at, entry.subject.file_name))
        return Snapshot(tuple(entries), tuple(damaged))

    def find(self, event_id: str, vm: str) -> Optional[Entry]:
        """One entry. Raises JournalError where its file is damaged."""
        name = Subject(event_id, vm).file_name
        if not check_directory(self.directory):
            return None
        try:
            return self._load(name)
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise JournalError(
                "The journal's file {0} for event {1} on {2} is damaged: {3}.".format(
                    os.path.join(self.directory, name), event_id, vm, error
                ),
                "Bring back by hand what was drained for it, then move the file away.",
            ) from None

    def check_writable(self) -> None:
        """Raises JournalError if an entry could not be written now."""
        with locked(self.directory):
            check_space(self.directory)

    def begin(self, subject: Subject, actor: str) -> Entry:
        """Open an entry before anything is drained; one that is open already stays as it is."""
        with self._writing():
            entry = self.find(subject.event_id, subject.vm)
            if entry is None:
                return self._save(Entry(subject, (self._step(DRAINING, actor),)))
            if entry.is_open:
                return entry
            return self._save(entry._replace(steps=entry.steps + (self._step(DRAINING, actor),), closed_because=None))

    def record_change(self, event_id: str, vm: str, backend: str, facts: Dict[str, Any]) -> Entry:
        """Remember what is about to be changed; the same change is remembered once."""
        check_facts(facts)
        with self._writing():
            entry = self._open_entry(event_id, vm)
            if any((change.backend, change.facts) == (backend, facts) for change in entry.open_changes):
                return entry
            change = Change(len(entry.changes) + 1, backend, facts, self._time())
            return self._save(entry._replace(changes=entry.changes + (change,)))

    def undo_change(self, event_id: str, vm: str, number: int) -> Entry:
        """Remember that a change was undone."""
        with self._writing():
            entry = self._open_entry(event_id, vm)
            if number not in [change.number for change in entry.changes]:
                raise InputError("Event {0} on {1} has no change {2} in the journal.".format(event_id, vm, number))
            changes = tuple(
                change._replace(undone_at=self._time())
                if change.number == number and change.undone_at is None
                else change
                for change in entry.changes
            )
            return entry if changes == entry.changes else self._save(entry._replace(changes=changes))

    def hand_over(self, event_ids: Sequence[str], vm: str) -> Optional[str]:
        """Let what was changed for events that are over count for another one that the VM is still out for, if any."""
        over = [name_key(event_id) for event_id in event_ids]
        with self._writing():
            entries = [entry for entry in self.read().entries if entry.is_open]
            entries = [entry for entry in entries if name_key(entry.subject.vm) == name_key(vm)]
            heirs = [entry for entry in entries if name_key(entry.subject.event_id) not in over]
            if not heirs:
                return None
            heir = heirs[0]
            givers = [entry for entry in entries if name_key(entry.subject.event_id) in over]
            handed = [change for giver in givers for change in giver.changes if change.undone_at is None]
            for change in sorted(handed, key=lambda change: (change.made_at, change.number)):
                heir = heir._replace(changes=heir.changes + (change._replace(number=len(heir.changes) + 1),))
            if handed:
                self._save(heir)
            for giver in givers:
                undone = (change._replace(undone_at=change.undone_at or self._time()) for change in giver.changes)
                self._save(giver._replace(changes=tuple(undone)))
            return heir.subject.event_id

    def enter_phase(self, event_id: str, vm: str, phase: str, actor: str, started_at: Optional[str] = None) -> Entry:
        """Note that a phase has been reached; the last one is reached by close() only. When the event started may have
        been noticed elsewhere, while the VM was away."""
        if phase not in OPEN_PHASES:
            raise InputError("{0} is not one of the phases {1}.".format(quote(phase), ", ".join(OPEN_PHASES)))
        with self._writing():
            entry = self._open_entry(event_id, vm)
            if entry.phase == phase:
                return entry
            noticed = () if started_at is None else (Step(STARTED, _time(started_at), actor),)
            return self._save(entry._replace(steps=entry.steps + noticed + (self._step(phase, actor),)))

    def note_approval(self, subject: Subject, actor: str) -> Entry:
        """Note an approval that was sent from this VM, also for an event that was not drained for."""
        with self._writing():
            entry = self.find(subject.event_id, subject.vm)
            if entry is not None and entry.approved_at is not None:
                return entry
            step = self._step(APPROVED, actor)
            if entry is None:
                entry = Entry(subject, (step, self._step(CLOSED, actor)), closed_because="approved without a drain")
            elif entry.is_open:
                entry = entry._replace(steps=entry.steps + (step,))
            saved = self._save(entry._replace(approved_at=step.at, approved_by=actor))
            self._forget_old_entries()
            return saved

    def close(self, event_id: str, vm: str, because: str, actor: str, abandon: bool = False) -> Entry:
        """End an entry. With changes that are not undone only if they are to be abandoned."""
        with self._writing():
            entry = self.find(event_id, vm)
            if entry is None:
                entry = self._open_entry(event_id, vm)
            if not entry.is_open:
                return entry
            if entry.open_changes and not abandon:
                raise JournalError(
                    "Event {0} on {1} cannot be closed: {2} not undone ({3}).".format(
                        event_id,
                        vm,
                        "one change is" if len(entry.open_changes) == 1 else "some changes are",
                        ", ".join(change.backend for change in entry.open_changes),
                    ),
                    "Restore first, or say abandon if the VM does not come back.",
                )
            saved = self._save(entry._replace(steps=entry.steps + (self._step(CLOSED, actor),), closed_because=because))
            self._forget_old_entries()
            return saved

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        if self._dry_run:
            yield
        else:
            with locked(self.directory):
                yield

    def _open_entry(self, event_id: str, vm: str) -> Entry:
        entry = self.find(event_id, vm)
        if entry is None and self._dry_run:
            return Entry(Subject(event_id, vm), (self._step(DRAINING, "dry run"),))
        if entry is None or not entry.is_open:
            raise JournalError(
                "The journal in {0} has no open entry for event {1} on {2}.".format(self.directory, event_id, vm),
                "Begin one first.",
            )
        return entry

    def _save(self, entry: Entry) -> Entry:
        try:
            _from_json(_to_json(entry))
        except ValueError as error:
            raise InputError("This cannot be written to the journal: {0}.".format(error)) from None
        if not self._dry_run:
            write_json(os.path.join(self.directory, entry.subject.file_name), _to_json(entry))
        return entry

    def _load(self, name: str) -> Entry:
        entry = _from_json(read_json(os.path.join(self.directory, name)))
        if entry.subject.file_name != name:
            raise ValueError("it belongs under the name {0}".format(entry.subject.file_name))
        return entry

    def _file_names(self) -> List[str]:
        try:
            names = os.listdir(self.directory) if check_directory(self.directory) else []
        except OSError as error:
            raise JournalError("Cannot read the journal in {0}: {1}.".format(self.directory, error.strerror)) from None
        return sorted(name for name in names if name.endswith(SUFFIX))

    def _forget_old_entries(self) -> None:
        if self._dry_run:
            return
        closed = [entry for entry in self.read().entries if not entry.is_open]
        closed.sort(key=lambda entry: entry.steps[-1].at, reverse=True)
        oldest = format_time(self._now() - KEEP_CLOSED_FOR) or ""
        for entry in closed[KEEP_CLOSED:] + [kept for kept in closed[:KEEP_CLOSED] if kept.steps[-1].at < oldest]:
            remove(os.path.join(self.directory, entry.subject.file_name))
        remove_stale_temporaries(self.directory)

    def _step(self, phase: str, actor: str) -> Step:
        return Step(phase, self._time(), actor)

    def _time(self) -> str:
        return format_time(self._now()) or ""


def check_facts(facts: Dict[str, Any]) -> None:
    """Facts are plain: words, numbers, yes or no, or lists of those."""
    for key, value in facts.items():
        for item in value if isinstance(value, list) else [value]:
            plain = isinstance(key, str) and isinstance(item, (str, int, float, bool, type(None)))
            if not plain or clean_value([key, item]) != [key, item]:
                raise InputError(
                    "The fact {0} of a change is {1}.".format(quote(key), quote(value)),
                    "A fact is a word, a number, true or false, or a list of those.",
                )


def _to_json(entry: Entry) -> Dict[str, Any]:
    value = entry.as_dict()
    del value["phase"], value["is_open"]
    return dict(value, format=FORMAT)


def _from_json(value: Dict[str, Any]) -> Entry:
    """Raises ValueError for anything that is not an entry as we write it."""
    if value.get("format") != FORMAT:
        raise ValueError("format {0} is not {1}, the one of this version".format(quote(value.get("format")), FORMAT))
    try:
        subject = Subject(
            event_id=_text(value["event_id"]),
            vm=_text(value["vm"]),
            event_type=_text(value["event_type"]),
            resources=tuple(_text(name) for name in _list(value["resources"])),
            not_before=_time_or_none(value["not_before"]),
        )
        steps = tuple(_parse_step(step) for step in _list(value["steps"]))
        changes = tuple(_change(change) for change in _list(value["changes"]))
        if not steps:
            raise ValueError("it has no steps")
        return Entry(
            subject,
            steps,
            changes,
            _time_or_none(value["approved_at"]),
            _text_or_none(value["approved_by"]),
            _text_or_none(value["closed_because"]),
        )
    except KeyError as error:
        raise ValueError("the key {0} is missing".format(error)) from None
    except (TypeError, AttributeError):
        raise ValueError("a value is of the wrong type") from None
    except InputError as error:
        raise ValueError(error.problem) from None


def _parse_step(value: Dict[str, Any]) -> Step:
    return Step(_phase(value["phase"]), _time(value["at"]), _text(value["actor"]))


def _change(value: Dict[str, Any]) -> Change:
    check_facts(value["facts"])
    return Change(
        _number(value["number"]),
        _text(value["backend"]),
        dict(value["facts"]),
        _time(value["made_at"]),
        _time_or_none(value["undone_at"]),
    )


def _phase(value: Any) -> str:
    if value not in PHASES:
        raise ValueError("{0} is not a phase".format(quote(value)))
    return str(value)


def _list(value: Any) -> List[Any]:
    if not isinstance(value, list):
        raise ValueError("{0} is not a list".format(quote(value)))
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("{0} is not a number".format(quote(value)))
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or clean_value(value) != value:
        raise ValueError("{0} is not a string".format(quote(value)))
    return value


def _text_or_none(value: Any) -> Optional[str]:
    return None if value is None else _text(value)


def _time(value: Any) -> str:
    parse_time(_text(value))
    return _text(value)


def _time_or_none(value: Any) -> Optional[str]:
    return None if value is None else _time(value)
