# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one backend of a drain has in the journal: noted before it is made, undone from what was noted."""

import time
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from ._document import name_key, quote
from ._errors import InputError, JournalError
from ._journal import Change, Entry, Journal
from ._module import Options

DRAINED = "drained"
RESTORED = "restored"


def drain_options() -> Options:
    """What every backend's module takes besides the common options."""
    return {
        "state": {"type": "str", "choices": [DRAINED, RESTORED], "default": DRAINED},
        "event_ids": {"type": "list", "elements": "str", "required": True},
        "vm": {"type": "str", "required": True},
        "timeout": {"type": "int", "default": 120},
    }


class Deadline:
    """A point in time that all that is done in one call has to keep."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._at - time.monotonic())

    @property
    def is_over(self) -> bool:
        return self.left <= 0


class OpenChange(NamedTuple):
    """A change that is still to be undone, and the event that it was made for."""

    event_id: str
    change: Change

    @property
    def facts(self) -> Dict[str, Any]:
        return self.change.facts


class Record:
    """The changes of one backend to one VM, for the events that it is out for."""

    def __init__(self, journal: Journal, backend: str, event_ids: Sequence[str], vm: str) -> None:
        self._journal = journal
        self._backend = backend
        self.vm = vm
        self.event_ids = sorted_ids(event_ids)
        if not vm.strip() or not self.event_ids:
            raise InputError("A drain is for a VM and at least one event; vm or event_ids is empty.")

    @property
    def event_id(self) -> str:
        """The event that changes are noted under."""
        return self.event_ids[0]

    @property
    def about(self) -> str:
        """How messages begin."""
        return "{0}, event {1}".format(self.vm, ", ".join(self.event_ids))

    def remember(self, facts: Dict[str, Any]) -> None:
        """Note a change that is about to be made."""
        self._journal.record_change(self.event_id, self.vm, self._backend, facts)

    def known(self) -> Tuple[OpenChange, ...]:
        """What this backend has done to the VM and not undone, for whatever event, oldest first."""
        entries = [entry for entry in self._journal.read().entries if entry.is_open]
        ours = [entry for entry in entries if name_key(entry.subject.vm) == name_key(self.vm)]
        return tuple(reversed(self._changes_of(ours)))

    def to_undo(self) -> Tuple[OpenChange, ...]:
        """What this backend has to undo for the events, newest first."""
        entries = [self._journal.find(event_id, self.vm) for event_id in self.event_ids]
        return self._changes_of([entry for entry in entries if entry is not None and entry.is_open])

    def forget(self, change: OpenChange) -> None:
        """Note that a change was undone."""
        self._journal.undo_change(change.event_id, self.vm, change.change.number)

    def _changes_of(self, entries: Sequence[Entry]) -> Tuple[OpenChange, ...]:
        found = [
            OpenChange(entry.subject.event_id, change)
            for entry in entries
            for change in entry.open_changes
            if change.backend == self._backend
        ]
        return tuple(sorted(found, key=lambda open_change: _age(open_change.change), reverse=True))


def sorted_ids(event_ids: Sequence[str]) -> List[str]:
    """Each event once; the first is the one under which changes are noted."""
    by_key = {name_key(event_id): event_id for event_id in event_ids if event_id.strip()}
    return [by_key[key] for key in sorted(by_key)]


def _age(change: Change) -> Tuple[str, int]:
    return change.made_at, change.number


def fact(facts: Dict[str, Any], name: str, kind: Any) -> Any:
    """A fact of a change that this version knows; anything else would be undone wrongly."""
    value = facts.get(name)
    if not isinstance(value, kind):
        raise JournalError(
            "The journal has a change with {0} {1}, which this version cannot undo.".format(name, quote(value)),
            "Use the version of azops.maintenance that made it, or undo it by hand and close the entry.",
        )
    return value
