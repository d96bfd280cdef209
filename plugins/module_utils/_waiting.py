# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waiting on one VM until events appear, have started or are gone."""

import time
from datetime import datetime
from typing import Callable, NamedTuple, Optional, Tuple

from ._client import MetadataClient
from ._document import STARTED, Document, Event
from ._errors import MaintenanceError
from ._journal import utc_now
from ._selection import Selection

APPEAR = "appear"
START = "started"
GONE = "gone"
CONDITIONS = (APPEAR, START, GONE)
GONE_FOR = 5.0
SLICE_SECONDS = 20


class Progress(NamedTuple):
    """How far a wait has come."""

    vm_name: str = ""
    met: bool = False
    reads: int = 0
    events: Tuple[Event, ...] = ()
    last_error: Optional[str] = None
    started_at: Optional[datetime] = None


class Watch:
    """Judges one document after the other."""

    def __init__(self, until: str) -> None:
        self._until = until
        self._absent_since: Optional[float] = None

    def is_met(self, document: Document, events: Tuple[Event, ...], at: float) -> bool:
        """Whether the condition is met by what was read at this moment."""
        if self._until == APPEAR:
            return bool(events)
        if self._until == GONE and events:
            self._absent_since = None
            return False
        if document.unreadable:
            return False
        if self._until == START:
            return all(event.event_status == STARTED for event in events)
        if self._absent_since is None:
            self._absent_since = at
        return at - self._absent_since >= GONE_FOR


def _started(events: Tuple[Event, ...]) -> Optional[datetime]:
    return utc_now() if any(event.event_status == STARTED for event in events) else None


def wait(
    client: MetadataClient,
    until: str,
    selection: Selection,
    seconds: float,
    interval: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Progress:
    """Poll until the condition is met or the time is over. Faults of the service are waited out."""
    watch = Watch(until)
    progress = Progress()
    give_up_at = clock() + seconds
    while True:
        try:
            vm_name = progress.vm_name or client.read_instance().name
            document = client.read_document()
            events = tuple(selection.select(document, vm_name))
            progress = Progress(
                vm_name=vm_name,
                met=watch.is_met(document, events, clock()),
                reads=progress.reads + 1,
                events=events,
                last_error=" ".join(document.unreadable) or None,
                started_at=progress.started_at or _started(events),
            )
        except MaintenanceError as error:
            progress = progress._replace(last_error=str(error))
        if progress.met or clock() + interval > give_up_at:
            return progress
        sleep(interval)
