# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan as users get it: plain dictionaries and lists, times as text, groups with safe names."""

import hashlib
import heapq
import re
from datetime import datetime
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from ansible_collections.azops.maintenance.plugins.module_utils._document import format_time, name_key, parse_time
from ansible_collections.azops.maintenance.plugins.plugin_utils._plan import (
    FOR_EVER,
    MOST_LEASES,
    MOST_WITNESSES,
    Batch,
    OpenEntry,
    Place,
    Plan,
    PlannedEvent,
    ScopeState,
)
from ansible_collections.azops.maintenance.plugins.plugin_utils._scan import Host, WholeScan


def view(plan: Plan, scan: WholeScan) -> Dict[str, Any]:
    """All of it."""
    batch_of = {
        planned.event.key: number
        for number, batch in enumerate(plan.batches, 1)
        for unit in batch.units
        for planned in unit.events
    }
    batch_of_host = {name: number for number, batch in enumerate(plan.batches, 1) for name in batch.hosts}
    approvals = {
        name_key(entry["event_id"]): (entry["approved_at"], entry["approved_by"])
        for host in scan.hosts.values()
        for entry in host.history
        if entry["approved_at"] is not None
    }
    phases = {(entry.host, name_key(entry.event_id)): entry.phase for entry in plan.open_entries}
    busy: Dict[Optional[int], Set[str]] = {number: set(batch.hosts) for number, batch in enumerate(plan.batches, 1)}
    return {
        "made_at": format_time(plan.options.now),
        "options": _options(plan),
        "hosts": {
            name: _host(scan.hosts[name], place, plan.scopes[place.scope], batch_of_host.get(name))
            for name, place in plan.places.items()
        },
        "silent": [
            {"host": host.name, "kind": host.silence[0], "why": host.silence[1]}
            for host in scan.hosts.values()
            if host.silence is not None
        ],
        "scopes": [_scope(name, state, plan.places, scan) for name, state in plan.scopes.items()],
        "restore": [_entry(entry) for entry in plan.restore],
        "batches": [_batch(number, batch, plan, phases) for number, batch in enumerate(plan.batches, 1)],
        "steps": _steps(plan),
        "events": [
            _event(planned, number, plan, busy.get(number, set()))
            for planned in plan.events
            for number in [batch_of.get(planned.event.key)]
        ],
        "open": [_entry(entry) for entry in plan.open_entries],
        "history": [_past(host, entry, approvals) for host in scan.hosts.values() for entry in host.history],
        "holds": _reasons((host.name, host.held_by) for host in scan.hosts.values()),
        "journal_problems": _reasons(
            (host.name, problem) for host in scan.hosts.values() for problem in host.journal_problems
        ),
        "not_azure_endpoints": [
            {"host": host.name, "endpoint": host.endpoint}
            for host in scan.hosts.values()
            if host.answered and not host.endpoint_is_azure
        ],
        "warnings": list(plan.warnings),
    }


def short_scope(scope: str) -> str:
    """What people call a scope: the name in a resource's id, the scale set of a placement group."""
    return scope.rsplit("/", 1)[-1] if scope.startswith("/") else scope.split("/", 1)[0]


def group_name(*words: str) -> str:
    """A name for an inventory group; what has to be changed to be safe gets a hash, so that no two become one."""
    parts = []
    for word in words:
        safe = re.sub(r"[^a-z0-9]+", "_", short_scope(word).lower()).strip("_")[:40]
        if safe != word.replace(" ", "_"):
            digest = hashlib.sha256(name_key(word).encode("utf-8", "replace")).hexdigest()[:8]
            safe = "{0}_{1}".format(safe, digest) if safe else digest
        parts.append(safe)
    return "_".join(["maintenance_scope", *parts])


def _options(plan: Plan) -> Dict[str, Any]:
    options = plan.options
    return {
        "drain_timeout": int(options.drain_timeout.total_seconds()),
        "margin": int(options.margin.total_seconds()),
        "max_unavailable": options.max_unavailable,
        "side_by_side": options.side_by_side,
        "approve_unmanaged": options.approve_unmanaged,
        "longest_wait": int(options.longest_wait.total_seconds()),
    }


def _host(host: Host, place: Place, state: ScopeState, batch: Optional[int]) -> Dict[str, Any]:
    return {
        "vm": host.vm_name,
        "scope": place.scope,
        "domain": place.domain,
        "groups": [group_name(place.scope), group_name(place.scope, place.domain)],
        "out": state.out.get(host.name),
        "batch": batch,
        "watcher": None if host.watcher is None else dict(host.watcher),
    }


def _steps(plan: Plan) -> List[Dict[str, Any]]:
    """The hosts of one step after the other, without what is for a later run. A spare host, one that nothing hits,
    keeps a play alive whose other hosts were all lost: ansible-playbook would end there and drain no later batch."""
    due: Dict[int, List[str]] = {}
    for batch in plan.batches:
        if not batch.is_for_later(plan.options):
            due.setdefault(batch.step, []).extend(batch.hosts)
    busy = {name for batch in plan.batches for name in batch.hosts}
    spares = [name for name in sorted(plan.places) if name not in busy]
    steps = []
    for number, (_step, hosts) in enumerate(sorted(due.items())):
        spare = spares[number : number + 1]
        steps.append({"index": number, "hosts": hosts, "spare": spare, "members": [*hosts, *spare]})
    return steps


def _scope(name: str, state: ScopeState, places: Mapping[str, Place], scan: WholeScan) -> Dict[str, Any]:
    domains: Dict[str, List[str]] = {}
    for host in state.hosts:
        if host in places:
            domains.setdefault(places[host].domain, []).append(host)
    return {
        "scope": name,
        "group": group_name(name),
        "domains": dict(sorted(domains.items())),
        "out": _reasons(sorted(state.out.items())),
        "max_unavailable": state.most_out,
        "leases": [{"scope": name, "host": host} for host in _lease_hosts(domains, scan)],
    }


def _lease_hosts(domains: Mapping[str, List[str]], scan: WholeScan) -> List[str]:
    """Where a run takes the lease of a scope: on the first hosts of each domain in turn, so that the loss of a domain
    costs one vote where there are several, and always in the same order, so that no two runs wait for each other."""

    def by_vm(name: str) -> Tuple[str, str]:
        return (scan.hosts[name].vm_key or "", name)

    ranked = [
        (rank, *by_vm(name))
        for names in domains.values()
        for rank, name in enumerate(heapq.nsmallest(MOST_LEASES, names, key=by_vm))
    ]
    chosen = [name for _rank, _vm, name in heapq.nsmallest(MOST_LEASES, ranked)]
    return sorted(chosen, key=by_vm)


def _entry(entry: OpenEntry) -> Dict[str, Any]:
    return dict(entry._asdict())


def _past(host: Host, entry: Mapping[str, Any], approvals: Mapping[str, Tuple[str, str]]) -> Dict[str, Any]:
    """How one VM went through one event: when each phase was reached, and how much time a drain left."""
    phases = {step["phase"]: step["at"] for step in entry["steps"]}
    approved_at, approved_by = approvals.get(name_key(entry["event_id"]), (None, None))
    if approved_at is not None:
        phases["approved"] = approved_at
    drained, not_before = phases.get("drained"), entry["not_before"]
    slack = None if drained is None or not_before is None else parse_time(not_before) - parse_time(drained)
    return {
        "host": host.name,
        "vm": entry["vm"],
        "event_id": entry["event_id"],
        "event_type": entry["event_type"],
        "not_before": not_before,
        "phase": entry["phase"],
        "phases": phases,
        "slack_seconds": None if slack is None else int(slack.total_seconds()),
        "approved_by": approved_by,
        "actor": entry["steps"][-1]["actor"],
        "closed_because": entry["closed_because"],
    }


def _batch(number: int, batch: Batch, plan: Plan, phases: Mapping[Tuple[str, str], str]) -> Dict[str, Any]:
    now = plan.options.now
    deadline = batch.deadline
    drain_by = None if deadline is None else deadline - plan.options.margin
    start = batch.must_start_by
    events = batch.events
    return {
        "number": number,
        "step": batch.step,
        "scopes": sorted({place.scope for place in batch.places}),
        "domains": [dict(place._asdict()) for place in batch.places],
        "hosts": batch.hosts,
        "drain": list(dict.fromkeys(name for planned in events if planned.drain for name in planned.hosts)),
        "units": [
            {"events": [planned.event.event_id for planned in unit.events], "hosts": list(unit.hosts)}
            for unit in batch.units
        ],
        "events": [planned.event.event_id for planned in events],
        "phases": [
            {"host": name, "event_id": planned.event.event_id, "phase": phases[name, planned.event.key]}
            for planned in events
            for name in planned.hosts
            if (name, planned.event.key) in phases
        ],
        "not_before": format_time(deadline),
        "seconds_left": _seconds(deadline, now),
        "drain_by": format_time(drain_by),
        "must_start_by": None if start is None or start > now + FOR_EVER / 2 else format_time(start),
        "is_for_later": batch.is_for_later(plan.options),
        "forced": batch.forced,
        "spans_domains": batch.spans_domains,
        "over_limit": batch.over_limit,
        "waits_for": _waits_for(batch, plan),
    }


def _waits_for(batch: Batch, plan: Plan) -> List[Dict[str, Any]]:
    """Hosts of other domains of the same scopes that are out already: both must not be out together."""
    places = batch.places
    out = {host: why for place in places for host, why in plan.scopes[place.scope].out.items() if host in plan.places}
    hosts = set(batch.hosts)
    return _reasons(
        (host, why) for host, why in sorted(out.items()) if host not in hosts and plan.places[host] not in places
    )


def _event(planned: PlannedEvent, batch: Optional[int], plan: Plan, busy: Set[str]) -> Dict[str, Any]:
    event = planned.event
    hit = [*planned.hosts, *planned.held, *planned.watched]
    places = sorted({plan.places[name] for name in hit or planned.seen_by})
    return {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "event_status": event.event_status,
        "event_source": event.event_source,
        "description": event.description,
        "duration_in_seconds": event.duration_in_seconds,
        "resources": list(event.resources),
        "hosts": list(planned.hosts),
        "unmanaged": list(planned.unmanaged),
        "held": list(planned.held),
        "watched": list(planned.watched),
        "scopes": sorted({place.scope for place in places}),
        "domains": [dict(place._asdict()) for place in places] if hit else [],
        "not_before": format_time(event.not_before),
        "seconds_left": _seconds(event.not_before, plan.options.now),
        "action": planned.action,
        "drain": planned.drain,
        "approve": planned.approve,
        "approve_from": format_time(planned.approve_from),
        "skipped": planned.skipped,
        "why": planned.why,
        "batch": batch,
        "seen_by": len(planned.seen_by),
        "witnesses": _witnesses(planned, busy),
    }


def _witnesses(planned: PlannedEvent, busy: Set[str]) -> List[str]:
    """Hosts that saw the event and are neither hit by it nor busy with it."""
    hit = set(planned.hosts).union(planned.held, planned.watched)
    found: List[str] = []
    for name in planned.seen_by:
        if name not in hit and name not in busy:
            found.append(name)
        if len(found) == MOST_WITNESSES:
            break
    return found


def _reasons(pairs: Iterable[Tuple[str, Optional[str]]]) -> List[Dict[str, Any]]:
    return [{"host": host, "why": why} for host, why in pairs if why is not None]


def _seconds(moment: Optional[datetime], now: datetime) -> Optional[int]:
    return None if moment is None else int((moment - now).total_seconds() // 1)
