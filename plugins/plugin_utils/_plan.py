# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan: from all hosts' answers to the ordered batches in which a fleet meets its events.

A pure function of its input. What is read of one host is in Host, of one event in PlannedEvent; then events that
share a VM become units, units of one domain of a scope become batches, and the batches get their times.
"""

from datetime import datetime, timedelta, timezone
from typing import Any, Dict, Hashable, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ansible_collections.azops.maintenance.plugins.module_utils._document import (
    SCHEDULED,
    STARTED,
    Event,
    format_time,
    name_key,
    parse_time,
)
from ansible_collections.azops.maintenance.plugins.module_utils._errors import InputError
from ansible_collections.azops.maintenance.plugins.module_utils._policy import (
    APPROVING_ACTIONS,
    DRAINING_ACTIONS,
    Policy,
    approve_at,
    decide,
    parse_policy,
    strictest,
)
from ansible_collections.azops.maintenance.plugins.plugin_utils._scan import (
    WATCHER,
    Host,
    Sighting,
    WholeScan,
)

MOST_WITNESSES = 5
MOST_LEASES = 3
FOR_EVER = timedelta(days=36500)
ANY_MOMENT = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Options(NamedTuple):
    """What the user says about planning."""

    now: datetime
    drain_timeout: timedelta = timedelta(seconds=120)
    margin: timedelta = timedelta(seconds=60)
    max_unavailable: Optional[str] = None
    side_by_side: bool = False
    approve_unmanaged: bool = False
    longest_wait: timedelta = timedelta(seconds=1800)


class Place(NamedTuple):
    """Where a host is: the scope, and its domain in it."""

    scope: str
    domain: str


class PlannedEvent(NamedTuple):
    """One event, whoever saw it, and what is to be done about it."""

    event: Event
    seen_by: Tuple[str, ...]
    hosts: Tuple[str, ...]
    unmanaged: Tuple[str, ...]
    held: Tuple[str, ...]
    watched: Tuple[str, ...]
    action: str
    drain: bool
    approve: bool
    approve_from: Optional[datetime]
    skipped: Optional[str]
    why: str

    @property
    def deadline(self) -> Optional[datetime]:
        return self.event.not_before

    @property
    def urgency(self) -> Tuple[datetime, str]:
        """Earliest deadline first; one that is not known may be any moment."""
        return (self.deadline or ANY_MOMENT, self.event.key)


class Unit(NamedTuple):
    """Events that share a VM: they can only be met together."""

    events: Tuple[PlannedEvent, ...]
    hosts: Tuple[str, ...]
    places: Tuple[Place, ...]
    drained: Mapping[str, Tuple[str, ...]]

    @property
    def urgency(self) -> Tuple[datetime, str]:
        return self.events[0].urgency


class Batch(NamedTuple):
    """Units that are met at the same time."""

    units: Tuple[Unit, ...]
    lane: str
    over_limit: Optional[str] = None
    forced: bool = False
    must_start_by: Optional[datetime] = None
    step: int = 0

    @property
    def places(self) -> List[Place]:
        return sorted({place for unit in self.units for place in unit.places})

    @property
    def spans_domains(self) -> bool:
        """Whether one unit by itself takes several domains out."""
        return any(len(unit.places) > 1 for unit in self.units)

    @property
    def events(self) -> List[PlannedEvent]:
        """Those that users asked for come first, then the earliest deadline."""
        events = [event for unit in self.units for event in unit.events]
        return sorted(events, key=lambda planned: (planned.event.event_source != "User", planned.urgency))

    @property
    def hosts(self) -> List[str]:
        return list(dict.fromkeys(host for event in self.events for host in event.hosts))

    @property
    def deadline(self) -> Optional[datetime]:
        deadlines = [event.deadline for unit in self.units for event in unit.events if event.deadline is not None]
        return min(deadlines) if deadlines else None

    @property
    def urgency(self) -> Tuple[datetime, str]:
        return min(unit.urgency for unit in self.units)

    def is_for_later(self, options: Options) -> bool:
        """Whether nothing is approved in it, and it starts so late that no run waits for it. One whose deadline is not
        known may be any moment."""
        starts_late = self.must_start_by is not None and self.must_start_by - options.now > options.longest_wait
        return starts_late and not any(planned.approve or planned.deadline is None for planned in self.events)


class OpenEntry(NamedTuple):
    """Something in a host's journal that is not finished."""

    host: str
    event_id: str
    vm: str
    phase: str
    state: str
    why: str
    actor: Optional[str] = None


class ScopeState(NamedTuple):
    """One scope: who is in it, who is out of service already, and how many may be."""

    hosts: Tuple[str, ...]
    out: Mapping[str, str]
    most_out: Optional[int]


class Plan(NamedTuple):
    """What is to be done, in order, and all that it was made from."""

    options: Options
    places: Mapping[str, Place]
    scopes: Mapping[str, ScopeState]
    events: Tuple[PlannedEvent, ...]
    restore: Tuple[OpenEntry, ...]
    batches: Tuple[Batch, ...]
    open_entries: Tuple[OpenEntry, ...]
    warnings: Tuple[str, ...]


class Sets:
    """Disjoint sets of things, joined as one learns that they belong together."""

    def __init__(self) -> None:
        self._parent: Dict[Hashable, Hashable] = {}

    def find(self, item: Hashable) -> Hashable:
        root = item
        while self._parent.setdefault(root, root) != root:
            root = self._parent[root]
        while self._parent[item] != root:
            self._parent[item], item = root, self._parent[item]
        return root

    def join(self, items: Iterable[Hashable]) -> None:
        first: Optional[Hashable] = None
        for item in items:
            root = self.find(item)
            if first is None:
                first = root
            else:
                self._parent[root] = first


def make_plan(scan: WholeScan, options: Options) -> Plan:
    """The whole of planning, step by step."""
    finder = VmFinder(scan)
    hit = {key: finder.hosts_of(sighting) for key, sighting in scan.sightings.items()}
    places = _places(scan, hit)
    judge = _Judge(scan, options)
    events = sorted(
        (judge.event(sighting, hit[key]) for key, sighting in scan.sightings.items()),
        key=lambda planned: planned.urgency,
    )
    open_entries = _open_entries(scan, finder)
    scopes = _scopes(scan, places, events, open_entries, options)
    units = _units([event for event in events if event.skipped is None], places, hit)
    batches = _timed(_batches(units, scopes, options), options)
    return Plan(
        options=options,
        places=places,
        scopes=scopes,
        events=tuple(events),
        restore=tuple(entry for entry in open_entries if entry.state == "gone" and entry.actor != WATCHER),
        batches=tuple(batches),
        open_entries=tuple(open_entries),
        warnings=tuple(scan.warnings + judge.warnings + _twins(hit)),
    )


# Which hosts an event hits, and where they are


class VmFinder:
    """The hosts behind the names in an event's resources."""

    def __init__(self, scan: WholeScan) -> None:
        self._scan = scan
        self._by_name: Dict[str, List[Host]] = {}
        for host in scan.hosts.values():
            if host.vm_key is not None:
                self._by_name.setdefault(host.vm_key, []).append(host)

    def named(self, vm: str) -> List[Host]:
        return self._by_name.get(name_key(vm), [])

    def hosts_of(self, sighting: Sighting) -> Dict[str, Tuple[str, ...]]:
        """By key of the name. A name alone proves nothing: other groups may have a VM of the same name. It is the
        right one if it sees the event itself, or is in the same resource group as one that does."""
        seen_by = set(sighting.seen_by)
        groups = {self._scan.hosts[name].resource_group for name in sighting.seen_by} - {None}
        return {
            key: tuple(
                host.name
                for host in self._by_name.get(key, [])
                if host.name in seen_by or host.resource_group in groups
            )
            for key in sighting.event.resource_keys
        }


def _places(scan: WholeScan, hit: Mapping[str, Mapping[str, Tuple[str, ...]]]) -> Dict[str, Place]:
    """Hosts that nothing else tells the scope of belong together if they see the same event."""
    together = Sets()
    for key, sighting in scan.sightings.items():
        named = [name for names in hit[key].values() for name in names]
        together.join(name for name in [*sighting.seen_by, *named] if scan.hosts[name].own_scope is None)
    members: Dict[Hashable, List[str]] = {}
    for host in scan.hosts.values():
        if host.answered and host.own_scope is None:
            members.setdefault(together.find(host.name), []).append(host.name)
    found: Dict[str, str] = {}
    for names in members.values():
        kind = "set of" if len(names) > 1 else "vm"
        found.update(dict.fromkeys(names, "{0} {1}".format(kind, min(names))))
    return {
        host.name: Place(host.own_scope or found[host.name], host.domain)
        for host in scan.hosts.values()
        if host.answered
    }


def _twins(hit: Mapping[str, Mapping[str, Tuple[str, ...]]]) -> List[str]:
    twins = {names for by_name in hit.values() for names in by_name.values() if len(names) > 1}
    return ["{0} are the same VM under several names.".format(" and ".join(names)) for names in sorted(twins)]


# What is to be done about an event


class _Judge:
    """Applies the hosts' policies, holds and the clock to events."""

    def __init__(self, scan: WholeScan, options: Options) -> None:
        self.warnings: List[str] = []
        self._scan = scan
        self._options = options
        self._policies: Dict[str, Policy] = {}
        self._policy_of = {host.name: self._parsed(host) for host in scan.hosts.values()}
        self._default = parse_policy(None)

    def _parsed(self, host: Host) -> Policy:
        key = repr(host.policy)
        if key not in self._policies:
            try:
                self._policies[key] = parse_policy(host.policy)
            except InputError as error:
                raise InputError("Host {0}, maintenance_policy: {1}".format(host.name, error)) from None
        return self._policies[key]

    def event(self, sighting: Sighting, by_name: Mapping[str, Tuple[str, ...]]) -> PlannedEvent:
        event = sighting.event
        hit = tuple(name for key in event.resource_keys for name in by_name[key])
        unmanaged = tuple(vm for vm in event.resources if not by_name[name_key(vm)])
        held = tuple(name for name in hit if self._scan.hosts[name].held_by is not None)
        watched = tuple(name for name in hit if name not in held and self._is_watched(name, event))
        policies = list(dict.fromkeys(self._policy_of[name] for name in hit)) or [self._default]
        decisions = [decide(policy, event) for policy in policies]
        action = strictest(decision.action for decision in decisions)
        decision = next(decision for decision in decisions if decision.action == action)
        if decision.warning:
            self.warnings.append(decision.warning)
        planned = PlannedEvent(
            event=event,
            seen_by=sighting.seen_by,
            hosts=tuple(name for name in hit if name not in held and name not in watched),
            unmanaged=unmanaged,
            held=held,
            watched=watched,
            action=action,
            drain=action in DRAINING_ACTIONS,
            approve=action in APPROVING_ACTIONS,
            approve_from=None,
            skipped=None,
            why="policy: {0}".format(decision.rule),
        )
        return self._skipped(planned) or self._restrained(planned, policies)

    def _skipped(self, planned: PlannedEvent) -> Optional[PlannedEvent]:
        """The event, if there is nothing to be done about it, with the reason."""
        event = planned.event
        reason = None
        if event.event_status == STARTED:
            reason = ("started", "Azure has started already")
        elif event.not_before is not None and event.not_before <= self._options.now:
            reason = ("too_late", "its time has passed, Azure may start at any moment")
        elif planned.watched and not planned.hosts:
            reason = ("watcher", self._watchers(planned))
        elif planned.action == "ignore":
            reason = ("ignored", planned.why)
        elif planned.action == "observe":
            reason = ("observed", planned.why)
        elif not event.resources:
            reason = ("names_no_vm", "it names no VM")
        elif planned.held and not planned.hosts:
            reason = ("held", self._holds(planned))
        elif not planned.hosts:
            reason = ("unmanaged", "none of its VMs is reached: {0}".format(", ".join(planned.unmanaged)))
        return reason and _skip(planned, *reason)

    def _is_watched(self, name: str, event: Event) -> bool:
        """Whether the host's own watcher has drained it for the event, acting alone."""
        entries = self._scan.hosts[name].open_entries
        return any(entry.actor == WATCHER and name_key(entry.event_id) == event.key for entry in entries)

    def _watchers(self, planned: PlannedEvent) -> str:
        return "the watcher of {0} takes care of it".format(", ".join(planned.watched))

    def _restrained(self, planned: PlannedEvent, policies: Sequence[Policy]) -> PlannedEvent:
        """Take back the approval where it must not be sent, or not yet."""
        if not planned.approve:
            return planned
        obstacles = []
        kind = "status"
        if planned.event.event_status != SCHEDULED:
            obstacles.append("its status is not known")
        if planned.held:
            kind = "held"
            obstacles.append(self._holds(planned))
        if planned.watched:
            kind = "watcher"
            obstacles.append(self._watchers(planned))
        if planned.unmanaged and not self._options.approve_unmanaged:
            kind = "unmanaged"
            obstacles.append("not reached: {0}".format(", ".join(planned.unmanaged)))
        if obstacles:
            why = "{0}; not approved, {1}".format(planned.why, "; ".join(obstacles))
            return planned._replace(approve=False, why=why) if planned.drain else _skip(planned, kind, why)
        return self._in_window(planned, policies)

    def _in_window(self, planned: PlannedEvent, policies: Sequence[Policy]) -> PlannedEvent:
        now = self._options.now
        room = self._options.margin + self._options.drain_timeout
        opening = max(approve_at(policy.approve_between, planned.event, now, room) for policy in policies)
        if opening <= now:
            return planned
        why = "{0}; to be approved from {1} on".format(planned.why, format_time(opening))
        return _skip(planned, "waiting", why)._replace(approve_from=opening)

    def _holds(self, planned: PlannedEvent) -> str:
        holds = ("{0} is held by {1}".format(name, self._scan.hosts[name].held_by) for name in planned.held)
        return ", ".join(holds)


def _skip(planned: PlannedEvent, kind: str, why: str) -> PlannedEvent:
    return planned._replace(skipped=kind, why=why, drain=False, approve=False)


# What is open, and who is out


def _open_entries(scan: WholeScan, finder: VmFinder) -> List[OpenEntry]:
    """An event is gone if the VM that it was about says so; a document that is not understood proves nothing."""
    found = []
    for host in scan.hosts.values():
        for entry in host.open_entries:
            sighting = scan.sightings.get(name_key(entry.event_id))
            if sighting is not None:
                state = sighting.event.event_status.lower()
                why = "the event is {0}".format(state)
            else:
                is_own = host.vm_key == name_key(entry.vm)
                asked = [host] if is_own else finder.named(entry.vm)
                if any(vm.document_is_whole for vm in asked):
                    state, why = "gone", "the event is gone"
                elif asked:
                    state, why = "unknown", "the document of {0} is not understood".format(entry.vm)
                else:
                    state, why = "unknown", "{0} does not answer".format(entry.vm)
            found.append(OpenEntry(host.name, entry.event_id, entry.vm, entry.phase, state, why, entry.actor))
    return found


def _scopes(
    scan: WholeScan,
    places: Mapping[str, Place],
    events: Sequence[PlannedEvent],
    open_entries: Sequence[OpenEntry],
    options: Options,
) -> Dict[str, ScopeState]:
    members: Dict[str, List[str]] = {}
    for name, place in places.items():
        members.setdefault(place.scope, []).append(name)
    lost = [host for host in scan.hosts.values() if host.is_unreachable]
    for host in lost:
        if host.own_scope in members:
            members[host.own_scope].append(host.name)
    out: Dict[str, Dict[str, str]] = {scope: {} for scope in members}
    for host in lost:
        # One whose scope is not known may be in any of them.
        for scope in [host.own_scope] if host.own_scope is not None else members if options.max_unavailable else []:
            if scope in out:
                out[scope][host.name] = "unreachable"
    for planned in events:
        if planned.skipped == "started":
            for name in (*planned.hosts, *planned.held, *planned.watched):
                out[places[name].scope][name] = "event {0} has started".format(planned.event.event_id)
    for entry in open_entries:
        if scan.hosts[entry.host].vm_key == name_key(entry.vm):
            out[places[entry.host].scope][entry.host] = "{0} for event {1}".format(entry.phase, entry.event_id)
    return {
        scope: ScopeState(tuple(sorted(names)), out[scope], _most_out(options.max_unavailable, len(names)))
        for scope, names in sorted(members.items())
    }


def _most_out(max_unavailable: Optional[str], size: int) -> Optional[int]:
    if max_unavailable is None:
        return None
    if max_unavailable.endswith("%"):
        return max(1, size * int(max_unavailable[:-1]) // 100)
    return int(max_unavailable)


# Units and batches


def _units(
    events: Sequence[PlannedEvent],
    places: Mapping[str, Place],
    hit: Mapping[str, Mapping[str, Tuple[str, ...]]],
) -> List[Unit]:
    """Events that name the same VM, reached or not, are met together."""
    sharing = Sets()
    for planned in events:
        scope = places[planned.hosts[0]].scope
        for vm in planned.event.resource_keys:
            names = hit[planned.event.key][vm]
            sharing.join([planned.event.key, names[0] if names else (scope, vm)])
    members: Dict[Hashable, List[PlannedEvent]] = {}
    for planned in events:
        members.setdefault(sharing.find(planned.event.key), []).append(planned)
    return [_unit(together, places) for together in members.values()]


def _unit(events: Sequence[PlannedEvent], places: Mapping[str, Place]) -> Unit:
    hosts = tuple(dict.fromkeys(name for planned in events for name in planned.hosts))
    drained: Dict[str, List[str]] = {}
    for name in dict.fromkeys(name for planned in events if planned.drain for name in planned.hosts):
        drained.setdefault(places[name].scope, []).append(name)
    return Unit(
        events=tuple(events),
        hosts=hosts,
        places=tuple(sorted({places[name] for name in hosts})),
        drained={scope: tuple(names) for scope, names in drained.items()},
    )


def _batches(units: Sequence[Unit], scopes: Mapping[str, ScopeState], options: Options) -> List[Batch]:
    """Units of one domain together as far as the limit allows, a unit over several domains alone."""
    lanes = Sets()
    by_place: Dict[Place, List[Unit]] = {}
    batches: List[Batch] = []
    for unit in units:
        lanes.join(place.scope for place in unit.places)
    for unit in units:
        if len(unit.places) > 1:
            batches.append(Batch((unit,), "", _over_limit(unit, scopes)))
        else:
            by_place.setdefault(unit.places[0], []).append(unit)
    for place, there in by_place.items():
        batches += _within_limit(there, place.scope, scopes)
    batches.sort(key=lambda batch: batch.urgency)
    return [
        batch._replace(lane=str(lanes.find(batch.units[0].places[0].scope)) if options.side_by_side else "")
        for batch in batches
    ]


def _within_limit(units: Sequence[Unit], scope: str, scopes: Mapping[str, ScopeState]) -> List[Batch]:
    """Filled in the order of deadlines."""
    state = scopes[scope]
    if state.most_out is None:
        return [Batch(tuple(units), "")]
    batches: List[Batch] = []
    waiting: List[Unit] = []
    out: Set[str] = set(state.out)
    for unit in sorted(units, key=lambda unit: unit.urgency):
        over_limit = _over_limit(unit, scopes)
        if over_limit:
            batches.append(Batch((unit,), "", over_limit))
            continue
        more = out.union(unit.drained.get(scope, ()))
        if waiting and len(more) > max(state.most_out, len(out)):
            batches.append(Batch(tuple(waiting), ""))
            waiting = []
            more = set(state.out).union(unit.drained.get(scope, ()))
        waiting.append(unit)
        out = more
    return batches + ([Batch(tuple(waiting), "")] if waiting else [])


def _over_limit(unit: Unit, scopes: Mapping[str, ScopeState]) -> Optional[str]:
    """Why a unit by itself takes too many VMs out; it cannot be divided, so it runs alone."""
    for scope, names in unit.drained.items():
        state = scopes[scope]
        others = sorted(set(state.out).difference(names))
        if state.most_out is not None and len(names) + len(others) > state.most_out:
            return "{0} of {1} out at once, {2} allowed{3}".format(
                len(names) + len(others),
                scope,
                state.most_out,
                "; out already: {0}".format(", ".join(others[:5])) if others else "",
            )
    return None


# Time


def _timed(batches: Sequence[Batch], options: Options) -> List[Batch]:
    """Each lane by itself: batches of the same step run at the same time."""
    lanes: Dict[str, List[Batch]] = {}
    for batch in batches:
        lanes.setdefault(batch.lane, []).append(batch)
    timed = [
        batch._replace(step=step) for lane in lanes.values() for step, batch in enumerate(_timed_lane(lane, options), 1)
    ]
    return sorted(timed, key=lambda batch: (batch.step, batch.urgency))


def _timed_lane(batches: Sequence[Batch], options: Options) -> List[Batch]:
    starts = _starts(batches, options)
    late = sum(1 for start in starts if start < options.now)
    if not late:
        return _with_starts(batches, starts)
    # What has to start while the late ones are still drained is late as well.
    drained_by = min(_drain_by(batch, options) for batch in batches[:late])
    while late < len(batches) and starts[late] < min(options.now + options.drain_timeout, drained_by):
        drained_by = min(drained_by, _drain_by(batches[late], options))
        late += 1
    merged = _merged(batches[:late])
    rest = [merged, *batches[late:]]
    return _with_starts(rest, _starts(rest, options))


def _starts(batches: Sequence[Batch], options: Options) -> List[datetime]:
    """Backwards: each has to be drained before its own deadline and before the next has to start."""
    starts: List[datetime] = []
    following = options.now + FOR_EVER
    for batch in reversed(batches):
        following = min(_drain_by(batch, options), following) - options.drain_timeout
        starts.append(following)
    return starts[::-1]


def _drain_by(batch: Batch, options: Options) -> datetime:
    return options.now + FOR_EVER if batch.deadline is None else batch.deadline - options.margin


def _with_starts(batches: Sequence[Batch], starts: Sequence[datetime]) -> List[Batch]:
    return [batch._replace(must_start_by=start) for batch, start in zip(batches, starts)]


def _merged(batches: Sequence[Batch]) -> Batch:
    limits = [batch.over_limit for batch in batches if batch.over_limit]
    return Batch(
        units=tuple(unit for batch in batches for unit in batch.units),
        lane=batches[0].lane,
        over_limit=limits[0] if limits else None,
        forced=True,
    )


def parse_now(value: Any) -> datetime:
    """A moment that the user gave."""
    try:
        return parse_time(value)
    except (ValueError, AttributeError, TypeError):
        raise InputError("now must be a time such as 2026-11-18T18:15:14Z, but it is {0!r}.".format(value)) from None
