# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of a document's events are meant, and what each means to one VM."""

from datetime import datetime
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._document import Document, Event, format_time, name_key


class Selection(NamedTuple):
    """Conditions on events; an empty one fits every event."""

    event_ids: Tuple[str, ...] = ()
    types: Tuple[str, ...] = ()
    statuses: Tuple[str, ...] = ()
    sources: Tuple[str, ...] = ()
    resources: Tuple[str, ...] = ()
    only_mine: bool = False

    @property
    def is_empty(self) -> bool:
        return self == Selection()

    def select(self, document: Document, vm_name: str) -> List[Event]:
        return [event for event in document.events if self._fits(event, vm_name)]

    def _fits(self, event: Event, vm_name: str) -> bool:
        return (
            _is_one_of(event.event_id, self.event_ids)
            and _is_one_of(event.event_type, self.types)
            and _is_one_of(event.event_status, self.statuses)
            and _is_one_of(event.event_source, self.sources)
            and (not self.resources or any(_is_one_of(name, self.resources) for name in event.resources))
            and (not self.only_mine or event.rank(vm_name) is not None)
        )


def selection_from(options: Dict[str, Any]) -> Selection:
    """The selection in a module's options, of which some modules do not have all."""
    lists = {name: tuple(options.get(name) or ()) for name in Selection._fields if name != "only_mine"}
    return Selection(only_mine=bool(options.get("only_mine")), **lists)


def event_for(event: Event, vm_name: str, now: datetime) -> Dict[str, Any]:
    """An event as users see it: normalised, with what it means to this VM."""
    rank = event.rank(vm_name)
    return dict(
        event._asdict(),
        resources=list(event.resources),
        not_before=format_time(event.not_before),
        seconds_left=event.seconds_left(now),
        hits_me=rank is not None,
        leader=event.leader,
        is_leader=rank == 0,
        rank=rank,
    )


def _is_one_of(value: Optional[str], wanted: Sequence[str]) -> bool:
    return not wanted or (value is not None and name_key(value) in [name_key(word) for word in wanted])
