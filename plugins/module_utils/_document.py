# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The document of scheduled events: liberal in what is accepted, strict in what comes out."""

import json
import math
import re
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_tz
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ._errors import DocumentError

API_VERSIONS = (
    "2017-03-01",
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
)
PREVIEW_API_VERSION = API_VERSIONS[0]
NEWEST_API_VERSION = API_VERSIONS[-1]

EVENT_TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
EVENT_STATUSES = ("Scheduled", "Started")
EVENT_SOURCES = ("Platform", "User")
SCHEDULED, STARTED = EVENT_STATUSES

KNOWN_FIELDS = {
    "EventId",
    "EventType",
    "EventStatus",
    "EventSource",
    "ResourceType",
    "Resources",
    "NotBefore",
    "Description",
    "DurationInSeconds",
}

DEEPEST = 20
LARGEST_NUMBER_BITS = 64

ISO_8601 = re.compile(
    r"^(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?\s*(Z|z|[+-]\d{2}:?\d{2})?$", re.ASCII
)


class Event(NamedTuple):
    """One announced interruption."""

    event_id: str
    event_type: str
    event_status: str
    event_source: Optional[str]
    resource_type: Optional[str]
    resources: Tuple[str, ...]
    not_before: Optional[datetime]
    description: Optional[str]
    duration_in_seconds: Optional[int]
    unknown_fields: Dict[str, Any]

    @property
    def key(self) -> str:
        """What tells events apart: ids compare without regard to case."""
        return name_key(self.event_id)

    @property
    def leader(self) -> Optional[str]:
        """The VM that approves."""
        return self.resources[0] if self.resources else None

    @property
    def resource_keys(self) -> List[str]:
        return [name_key(resource) for resource in self.resources]

    def rank(self, vm_name: str) -> Optional[int]:
        """The place of a VM among those that are hit, 0 for the leader; None if it is not hit."""
        key = name_key(vm_name)
        return self.resource_keys.index(key) if key in self.resource_keys else None

    def seconds_left(self, now: datetime) -> Optional[int]:
        """Whole seconds until Azure may start by itself, negative once that has passed."""
        return None if self.not_before is None else int((self.not_before - now).total_seconds() // 1)


class Document(NamedTuple):
    """All events that one VM sees at one moment."""

    incarnation: Optional[int]
    events: Tuple[Event, ...]
    unreadable: Tuple[str, ...]
    oddities: Tuple[str, ...]

    def event(self, event_id: str) -> Optional[Event]:
        key = name_key(event_id)
        return next((event for event in self.events if event.key == key), None)


def name_key(name: str) -> str:
    """Names of VMs and ids of events compare without regard to case."""
    return name.lower()


def format_time(moment: Optional[datetime]) -> Optional[str]:
    """A UTC time as ISO 8601, to the second."""
    return None if moment is None else moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """A time as RFC 1123 or ISO 8601, in UTC. Raises ValueError. A wrong weekday is no reason to refuse it."""
    text = text.strip()
    iso = ISO_8601.match(text)
    try:
        if iso:
            numbers = [int(number or 0) for number in iso.groups()[:6]]
            offset = _offset(iso.group(7))
        else:
            rfc_1123 = parsedate_tz(text)
            if rfc_1123 is None:
                raise ValueError
            numbers = list(rfc_1123[:6])
            offset = timedelta(seconds=rfc_1123[9] or 0)
        if not 1970 <= numbers[0] <= 9000:
            raise ValueError
        year, month, day, hour, minute, second = numbers
        return datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc) - offset
    except (ValueError, OverflowError, TypeError, IndexError):
        raise ValueError("neither an RFC 1123 nor an ISO 8601 time: {0}".format(quote(text))) from None


def parse_document(value: Any, api_version: str = NEWEST_API_VERSION) -> Document:
    """Understand the service's answer. Raises DocumentError only where nothing in it can be understood."""
    if not isinstance(value, dict):
        raise DocumentError("The scheduled events are not a JSON object but {0}.".format(quote(value)))
    entries = value.get("Events")
    if entries is None:
        entries = []
    if not isinstance(entries, list):
        raise DocumentError("Events is not a list but {0}.".format(quote(entries)))
    oddities: List[str] = []
    unreadable: List[str] = []
    if value.get("Events") is None:
        unreadable.append("The document has no Events.")
    events: Dict[str, Event] = {}
    for entry in entries:
        try:
            event = _parse_event(entry, api_version, oddities)
        except (ValueError, RecursionError) as error:
            unreadable.append("{0}: {1}".format(error, quote(entry)))
            continue
        first = events.setdefault(event.key, event)
        if first != event._replace(event_id=first.event_id):
            unreadable.append("Event {0} is listed twice, differently.".format(quote(event.event_id)))
            events[event.key] = first._replace(resources=_united(first.resources, event.resources))
    incarnation = _whole_number(value.get("DocumentIncarnation"))
    if incarnation is None:
        oddities.append("DocumentIncarnation is not a number: {0}.".format(quote(value.get("DocumentIncarnation"))))
    return Document(incarnation, tuple(events.values()), tuple(unreadable), tuple(oddities))


def quote(value: Any) -> str:
    """Something that the service sent, made short and safe for a message."""
    try:
        text = json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(str(type(value)))
    return text if len(text) <= 120 else text[:117] + "..."


def clean_text(value: Any) -> Optional[str]:
    """A string without lone surrogates, which no output can carry; None for anything empty or not a string."""
    if not isinstance(value, str) or not value.strip():
        return None
    return value.encode("utf-8", "replace").decode("utf-8")


def clean_value(value: Any, depth: int = 0) -> Any:
    """Any JSON value with clean strings and numbers that every reader takes; what is nested too deep is quoted."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, (list, dict)) and depth > DEEPEST:
        return quote(value)
    if isinstance(value, list):
        return [clean_value(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {clean_value(key): clean_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and value.bit_length() > LARGEST_NUMBER_BITS:
        return None
    return value


def _parse_event(entry: Any, api_version: str, oddities: List[str]) -> Event:
    if not isinstance(entry, dict):
        raise ValueError("An event is not an object")
    event_id = clean_text(entry.get("EventId"))
    if event_id is None or event_id != entry["EventId"]:
        raise ValueError("An event has no usable EventId")
    not_before = None
    try:
        not_before = _parse_not_before(entry.get("NotBefore"))
    except ValueError as error:
        oddities.append("NotBefore of event {0} is {1}.".format(quote(event_id), error))
    return Event(
        event_id=event_id,
        event_type=_canonical(entry.get("EventType"), EVENT_TYPES) or "Unknown",
        event_status=_canonical(entry.get("EventStatus"), EVENT_STATUSES) or "Unknown",
        event_source=_canonical(entry.get("EventSource"), EVENT_SOURCES),
        resource_type=clean_text(entry.get("ResourceType")),
        resources=_parse_resources(entry.get("Resources"), api_version),
        not_before=not_before,
        description=clean_text(entry.get("Description")),
        duration_in_seconds=_parse_duration(entry.get("DurationInSeconds"), event_id, oddities),
        unknown_fields=clean_value({key: entry[key] for key in entry if key not in KNOWN_FIELDS}),
    )


def _parse_not_before(value: Any) -> Optional[datetime]:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ValueError("not a string: {0}".format(quote(value)))
    return parse_time(value)


def _parse_resources(value: Any, api_version: str) -> Tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError("The Resources of an event are not a list")
    names: Dict[str, str] = {}
    for item in value:
        name = clean_text(item)
        if name is None:
            raise ValueError("A name in the Resources of an event is not a string")
        if api_version == PREVIEW_API_VERSION and name.startswith("_") and name != "_":
            name = name[1:]
        names.setdefault(name_key(name), name)
    return tuple(names.values())


def _united(names: Tuple[str, ...], more_names: Tuple[str, ...]) -> Tuple[str, ...]:
    known = [name_key(name) for name in names]
    return names + tuple(name for name in more_names if name_key(name) not in known)


def _parse_duration(value: Any, event_id: str, oddities: List[str]) -> Optional[int]:
    if value is None or value == "":
        return None
    seconds = _whole_number(value)
    if seconds is None:
        oddities.append("DurationInSeconds of event {0} is not a number: {1}.".format(quote(event_id), quote(value)))
    return None if seconds is None or seconds < 0 else seconds


def _whole_number(value: Any) -> Optional[int]:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value.bit_length() <= LARGEST_NUMBER_BITS else None
    if isinstance(value, float):
        return int(value) if abs(value) < 2**53 and value == int(value) else None
    if isinstance(value, str) and re.match(r"^\s*-?[0-9]{1,18}\s*$", value):
        return int(value)
    return None


def _canonical(value: Any, known: Tuple[str, ...]) -> Optional[str]:
    """A known word in its own spelling, an unknown one as it came."""
    text = clean_text(value)
    return text and next((word for word in known if name_key(word) == name_key(text)), text)


def _offset(zone: Optional[str]) -> timedelta:
    if zone is None or zone in "Zz":
        return timedelta(0)
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return timedelta(minutes=-minutes if zone[0] == "-" else minutes)
