# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scan of a fleet: what every host answered, checked, with each event once however many saw it."""

import re
from datetime import datetime, timedelta
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.azops.maintenance.plugins.module_utils._document import (
    STARTED,
    Event,
    name_key,
    parse_time,
    quote,
)
from ansible_collections.azops.maintenance.plugins.module_utils._errors import InputError

DEFAULT_DOMAIN_BY = ("fault_domain", "zone")
RECENT = timedelta(hours=24)
VM_DOMAINS = ("update_domain", "fault_domain", "zone")
HOST_KEYS = ("scope", "domain", "policy", "hold", "variables")
WATCHER = "azops-watcher"
RESOURCE_GROUP = re.compile(r"^/subscriptions/([^/]+)/resourcegroups/([^/]+)(?:/|$)", re.IGNORECASE)


class JournalEntry(NamedTuple):
    """What is open in a host's journal."""

    event_id: str
    vm: str
    phase: str
    actor: Optional[str] = None


class Host(NamedTuple):
    """One host of the play: its answer, and what its variables say."""

    name: str
    own_scope: Optional[str] = None
    policy: Any = None
    held_by: Optional[str] = None
    silence: Optional[Tuple[str, str]] = None
    vm_name: Optional[str] = None
    resource_group: Optional[str] = None
    domain: str = ""
    open_entries: Tuple[JournalEntry, ...] = ()
    journal_problems: Tuple[str, ...] = ()
    history: Tuple[Mapping[str, Any], ...] = ()
    watcher: Optional[Mapping[str, Any]] = None
    document_is_whole: bool = False
    endpoint: Optional[str] = None
    endpoint_is_azure: bool = True

    @property
    def answered(self) -> bool:
        return self.silence is None

    @property
    def is_unreachable(self) -> bool:
        return self.silence is not None and self.silence[0] == "unreachable"

    @property
    def vm_key(self) -> Optional[str]:
        return None if self.vm_name is None else name_key(self.vm_name)


class Sighting(NamedTuple):
    """An event and the hosts whose documents list it."""

    event: Event
    seen_by: Tuple[str, ...]


class WholeScan(NamedTuple):
    """Every host, by name, and every event, by the key of its id."""

    hosts: Mapping[str, Host]
    sightings: Mapping[str, Sighting]
    warnings: List[str]


def read_scan(answers: Any, variables: Any, domain_by: Sequence[str], now: datetime, patience: timedelta) -> WholeScan:
    """Check and sort what the filter was given. Raises InputError that names the host and the key."""
    if not isinstance(answers, Mapping):
        raise InputError(
            "The answers must be a dictionary from the host's name to what scheduled_events_info returned,"
            " but they are {0}.".format(type(answers).__name__)
        )
    variables = {} if variables is None else variables
    if not isinstance(variables, Mapping):
        raise InputError("variables must be a dictionary by host, but it is {0}.".format(type(variables).__name__))
    events = _Events()
    hosts: Dict[str, Host] = {}
    warnings: List[str] = []
    for name in sorted(answers):
        answer = answers[name]
        host = _with_variables(Host(str(name)), variables.get(name))
        if not answer or (isinstance(answer, Mapping) and not is_answer(answer)):
            hosts[host.name] = host._replace(silence=_silence(answer))
            continue
        reader = _Reader(host.name, answer)
        host = _with_answer(host, reader, variables.get(name) or {}, domain_by)
        hosts[host.name] = host._replace(history=_recent(reader, now))
        for entry in reader.list("events"):
            events.add(host.name, entry)
        warnings += _oddities(host.name, reader, now + patience)
    return WholeScan(hosts, events.sightings(), warnings)


def is_answer(value: Any) -> bool:
    """Whether a host told what it knows, and not only why it could not."""
    return isinstance(value, Mapping) and "vm" in value and "events" in value


def drained_by(entry: Mapping[str, Any]) -> Optional[str]:
    """Who drained for an entry of a journal, the last time that it was opened."""
    actors = [step.get("actor") for step in entry.get("steps") or [] if step.get("phase") == "draining"]
    return actors[-1] if actors else None


class _Events:
    """Gathers events; the same event from another host costs one comparison."""

    def __init__(self) -> None:
        self._events: Dict[str, Event] = {}
        self._as_seen: Dict[str, Tuple[Any, ...]] = {}
        self._seen_by: Dict[str, List[str]] = {}

    def add(self, host: str, entry: Any) -> None:
        event_id = entry.get("event_id") if isinstance(entry, Mapping) else None
        if not isinstance(event_id, str) or not event_id:
            raise _wrong(host, "events", "an event has no event_id", entry)
        key = name_key(event_id)
        as_seen = tuple(entry.get(field) for field in ("event_status", "not_before", "resources", "event_type"))
        if self._as_seen.get(key) != as_seen:
            event = _read_event(_Reader(host, entry, "events[{0}].".format(event_id)))
            self._events[key] = _united(self._events[key], event) if key in self._events else event
            self._as_seen[key] = as_seen
        seen_by = self._seen_by.setdefault(key, [])
        if not seen_by or seen_by[-1] != host:
            seen_by.append(host)

    def sightings(self) -> Dict[str, Sighting]:
        return {key: Sighting(self._events[key], tuple(self._seen_by[key])) for key in sorted(self._events)}


class _Reader:
    """Takes values out of an answer and names the host and the key where one is wrong."""

    def __init__(self, host: str, value: Any, prefix: str = "") -> None:
        if not isinstance(value, Mapping):
            raise _wrong(host, prefix.rstrip(".") or "answer", "must be a dictionary", value)
        self.host = host
        self.value = value
        self._prefix = prefix

    def inside(self, key: str) -> "_Reader":
        return _Reader(self.host, self.value.get(key), "{0}{1}.".format(self._prefix, key))

    def has(self, key: str) -> bool:
        return self.value.get(key) is not None

    def word(self, key: str) -> Optional[str]:
        value = self.value.get(key)
        if value is not None and not isinstance(value, str):
            raise _wrong(self.host, self._prefix + key, "must be a string", value)
        return value or None

    def needed_word(self, key: str) -> str:
        value = self.word(key)
        if value is None:
            raise _wrong(self.host, self._prefix + key, "must be a string, and not empty", value)
        return value

    def time(self, key: str) -> Optional[datetime]:
        text = self.word(key)
        try:
            return None if text is None else parse_time(text)
        except ValueError:
            raise _wrong(self.host, self._prefix + key, "must be a time", text) from None

    def number(self, key: str) -> Optional[int]:
        value = self.value.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise _wrong(self.host, self._prefix + key, "must be a whole number", value)
        return value

    def list(self, key: str) -> List[Any]:
        value = self.value.get(key)
        if not isinstance(value, (list, tuple)):
            raise _wrong(self.host, self._prefix + key, "must be a list", value)
        return list(value)

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.value.get(key, default))


def _silence(answer: Any) -> Tuple[str, str]:
    """Why a host said nothing: the kind, and its own words."""
    if not isinstance(answer, Mapping):
        return ("no_answer", "it was not asked, or did not answer")
    words = " ".join(str(answer.get("msg") or "it did not answer").split())
    if answer.get("unreachable"):
        return ("unreachable", words)
    return ("not_azure" if answer.get("error_kind") == "not_azure" else "failed", words)


def _with_variables(host: Host, value: Any) -> Host:
    if value is None:
        return host
    reader = _Reader(host.name, value, "variables.")
    for key in value:
        if key not in HOST_KEYS:
            raise InputError(
                "Host {0}: variables has the unknown key {1}.".format(host.name, quote(str(key))),
                "Known: {0}.".format(", ".join(HOST_KEYS)),
            )
    hold = value.get("hold")
    if hold is not None and not isinstance(hold, bool):
        raise _wrong(host.name, "variables.hold", "must be true or false", hold)
    return host._replace(
        own_scope=_label(reader, "scope"),
        policy=value.get("policy"),
        held_by="maintenance_hold" if hold else None,
    )


def _with_answer(host: Host, reader: _Reader, variables: Mapping[str, Any], domain_by: Sequence[str]) -> Host:
    vm = reader.inside("vm")
    name = vm.needed_word("name")
    group = RESOURCE_GROUP.match(vm.word("resource_id") or "")
    entries, problems = _read_journal(reader)
    return host._replace(
        own_scope=host.own_scope or _scale_set(vm),
        held_by=host.held_by or reader.word("held_by"),
        vm_name=name,
        resource_group="/".join(group.groups()).lower() if group else None,
        domain=_domain(_Reader(host.name, variables, "variables."), vm, domain_by) or "vm {0}".format(name_key(name)),
        open_entries=entries,
        journal_problems=problems,
        watcher=dict(reader.inside("watcher").value) if reader.has("watcher") else None,
        document_is_whole=not reader.has("unreadable") or not reader.list("unreadable"),
        endpoint=reader.word("endpoint"),
        endpoint_is_azure=reader.flag("endpoint_is_azure", True),
    )


def _scale_set(vm: _Reader) -> Optional[str]:
    scale_set_id = vm.word("scale_set_id")
    if scale_set_id is not None:
        return name_key(scale_set_id)
    name, placement_group = vm.word("scale_set_name"), vm.word("placement_group_id")
    return name_key("{0}/{1}".format(name, placement_group)) if name and placement_group else None


def _domain(host: _Reader, vm: _Reader, domain_by: Sequence[str]) -> Optional[str]:
    """What the user says for this host, else its update domain, else the first of the user's list that it has."""
    own = _label(host, "domain")
    if own is not None:
        return own
    given = host.inside("variables") if host.has("variables") else None
    for key in ("update_domain", *domain_by):
        value = vm.word(key) if key in VM_DOMAINS else given and _label(given, key)
        if value is not None:
            return "{0} {1}".format(key.replace("_", " "), value)
    return None


def _label(reader: _Reader, key: str) -> Optional[str]:
    """A name that a user gave; a number is taken for its digits."""
    value = reader.value.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return reader.word(key)


def _read_journal(answer: _Reader) -> Tuple[Tuple[JournalEntry, ...], Tuple[str, ...]]:
    if not answer.has("journal"):
        return (), (answer.word("journal_error") or "the journal was not read",)
    journal = answer.inside("journal")
    readers = [_Reader(answer.host, entry, "journal.entries[].") for entry in journal.list("entries")]
    entries = tuple(
        JournalEntry(
            entry.needed_word("event_id"), entry.needed_word("vm"), entry.needed_word("phase"), drained_by(entry.value)
        )
        for entry in readers
        if entry.flag("is_open", False)
    )
    damaged = [_Reader(answer.host, file, "journal.damaged[].") for file in journal.list("damaged")]
    return entries, tuple("{0} is damaged: {1}".format(file.word("file"), file.word("reason")) for file in damaged)


def _recent(answer: _Reader, now: datetime) -> Tuple[Mapping[str, Any], ...]:
    """The entries of a journal that are open, or were not long ago."""
    entries = answer.inside("journal").list("entries") if answer.has("journal") else []
    return tuple(
        entry
        for entry in entries
        if entry.get("steps") and (entry["is_open"] or parse_time(entry["steps"][-1]["at"]) > now - RECENT)
    )


def _read_event(entry: _Reader) -> Event:
    names: Dict[str, str] = {}
    for name in entry.list("resources"):
        if not isinstance(name, str) or not name:
            raise _wrong(entry.host, entry._prefix + "resources", "must be a list of names", name)
        names.setdefault(name_key(name), name)
    return Event(
        event_id=entry.needed_word("event_id"),
        event_type=entry.word("event_type") or "Unknown",
        event_status=entry.word("event_status") or "Unknown",
        event_source=entry.word("event_source"),
        resource_type=entry.word("resource_type"),
        resources=tuple(names.values()),
        not_before=entry.time("not_before"),
        description=entry.word("description"),
        duration_in_seconds=entry.number("duration_in_seconds"),
        unknown_fields={},
    )


def _united(first: Event, second: Event) -> Event:
    """Two readings of an event at different moments: the one that asks for more care in everything."""
    names = dict(zip(second.resource_keys, second.resources))
    names.update(zip(first.resource_keys, first.resources))
    order = dict.fromkeys(first.resource_keys + second.resource_keys)
    times = [moment for moment in (first.not_before, second.not_before) if moment is not None]
    durations = (first.duration_in_seconds, second.duration_in_seconds)
    return first._replace(
        event_status=STARTED if STARTED in (first.event_status, second.event_status) else first.event_status,
        resources=tuple(names[key] for key in order),
        not_before=min(times) if times else None,
        duration_in_seconds=None if None in durations else max(value for value in durations if value is not None),
    )


def _oddities(host: str, answer: _Reader, latest: datetime) -> List[str]:
    found = []
    read_at = answer.time("read_at")
    if read_at is not None and read_at > latest:
        found.append("The clock of {0} is ahead: it says {1}.".format(host, answer.word("read_at")))
    if answer.has("unreadable") and answer.list("unreadable"):
        found.append("Parts of the document of {0} are not understood.".format(host))
    return found


def _wrong(host: str, key: str, what: str, value: Any) -> InputError:
    return InputError("Host {0}, {1}: {2}, but it is {3}.".format(host, key, what, quote(value)))
