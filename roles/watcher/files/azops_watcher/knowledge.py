# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the watcher knows: which events hit this VM, and which of their changes are news."""

import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from azops_core._document import STARTED as EVENT_STARTED
from azops_core._document import Document, name_key
from azops_core._journal import utc_now
from azops_core._safe_files import read_json, write_json
from azops_core._selection import event_for
from azops_core._waiting import GONE_FOR

from .config import GONE, SCHEDULED, STARTED
from .notify import Notice

FORMAT = 1


class Tracked(NamedTuple):
    """An event that hits this VM, as it was last seen."""

    event: Dict[str, Any]
    status: str
    absent_since: Optional[float] = None
    drained: bool = False
    approved: bool = False


class Change(NamedTuple):
    """News of an event."""

    status: str
    event: Dict[str, Any]


class Asked(NamedTuple):
    """A change whose hooks the root unit was asked to run."""

    status: str
    event: Dict[str, Any]
    act: bool


class Knowledge(NamedTuple):
    """All that has to outlive the process."""

    vm: Optional[str] = None
    tracked: Dict[str, Tracked] = {}
    wanted: Tuple[Change, ...] = ()
    asked: Tuple[Asked, ...] = ()
    outbox: Tuple[Notice, ...] = ()

    def marked(self, event_id: str, **marks: Any) -> "Knowledge":
        """The same with some marks on an event, if it is still tracked."""
        key = name_key(event_id)
        if key not in self.tracked:
            return self
        return self._replace(tracked=dict(self.tracked, **{key: self.tracked[key]._replace(**marks)}))


def observe(knowledge: Knowledge, document: Document, vm: str, at: float) -> Tuple[Knowledge, List[Change]]:
    """Compare a document with what was known. An event is gone when it is missing for 5 s from whole documents."""
    tracked = dict(knowledge.tracked)
    changes: List[Change] = []
    now = utc_now()
    for event in document.events:
        if event.rank(vm) is None:
            continue
        facts = event_for(event, vm, now)
        status = STARTED if event.event_status == EVENT_STARTED else SCHEDULED
        before = tracked.get(event.key)
        if before is None or before.status != status:
            changes.append(Change(status, facts))
        tracked[event.key] = (before or Tracked(facts, status))._replace(event=facts, status=status, absent_since=None)
    present = {event.key for event in document.events}
    for key in [key for key in tracked if key not in present and not document.unreadable]:
        absent_since = tracked[key].absent_since
        if absent_since is None or at < absent_since:
            tracked[key] = tracked[key]._replace(absent_since=at)
        elif at - absent_since >= GONE_FOR:
            changes.append(Change(GONE, tracked.pop(key).event))
    return knowledge._replace(vm=vm, tracked=tracked), changes


def has_doubts(knowledge: Knowledge) -> bool:
    """Whether an event is missing, but not yet for long enough."""
    return any(tracked.absent_since is not None for tracked in knowledge.tracked.values())


def load(directory: str) -> Knowledge:
    """What was known before. A file that cannot be understood is put aside: then all events are news once more."""
    path = os.path.join(directory, "state.json")
    try:
        return _from_json(read_json(path))
    except FileNotFoundError:
        return Knowledge()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        os.replace(path, path + ".damaged")
        return Knowledge()


def save(directory: str, knowledge: Knowledge) -> None:
    write_json(os.path.join(directory, "state.json"), _to_json(knowledge))


def _to_json(knowledge: Knowledge) -> Dict[str, Any]:
    return {
        "format": FORMAT,
        "vm": knowledge.vm,
        "tracked": {key: dict(tracked._asdict(), absent_since=None) for key, tracked in knowledge.tracked.items()},
        "wanted": [dict(change._asdict()) for change in knowledge.wanted],
        "asked": [dict(asked._asdict()) for asked in knowledge.asked],
        "outbox": [dict(notice._asdict()) for notice in knowledge.outbox],
    }


def _from_json(value: Dict[str, Any]) -> Knowledge:
    if value["format"] != FORMAT:
        raise ValueError("another format")
    return Knowledge(
        vm=value["vm"],
        tracked={str(key): Tracked(**item) for key, item in value["tracked"].items()},
        wanted=tuple(Change(**item) for item in value["wanted"]),
        asked=tuple(Asked(**item) for item in value["asked"]),
        outbox=tuple(Notice(**item) for item in value["outbox"]),
    )
