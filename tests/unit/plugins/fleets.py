# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts answer, as scheduled_events_info returns it, and the plan that is made from it."""

import copy
from datetime import datetime, timedelta, timezone

from ansible_collections.azops.maintenance.plugins.filter.plan import plan

NOW = "2026-11-18T12:00:00Z"
FOUR = {"a": "0", "b": "1", "c": "2", "d": "0"}
UNREACHABLE = {"unreachable": True, "msg": "Connection timed out"}


def at(seconds):
    moment = datetime(2026, 11, 18, 12, tzinfo=timezone.utc) + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def event(event_id, *vms, left=900, kind="Reboot", status="Scheduled", source="Platform", duration=None):
    return {
        "event_id": event_id,
        "event_type": kind,
        "event_status": status,
        "event_source": source,
        "resources": list(vms),
        "not_before": None if left is None else at(left),
        "description": "Host server is undergoing maintenance.",
        "duration_in_seconds": duration,
    }


def answer(name, *events, domain=None, entries=(), **more):
    """What one host answers; more goes into its vm where that has such a key."""
    vm = {"name": name, "resource_id": None, "update_domain": domain, "fault_domain": None, "zone": None}
    vm.update(scale_set_id=None, scale_set_name=None, placement_group_id=None)
    vm.update({key: more.pop(key) for key in list(more) if key in vm})
    return dict(
        {
            "vm": vm,
            "events": [_as_seen_by(name, one) for one in events],
            "unreadable": [],
            "journal": {"entries": list(entries), "damaged": []},
            "journal_error": None,
            "held_by": None,
            "endpoint": "http://169.254.169.254",
            "endpoint_is_azure": True,
            "read_at": NOW,
        },
        **more,
    )


def _as_seen_by(vm, one):
    hits_me = vm.lower() in [str(name).lower() for name in one.get("resources") or []]
    return dict(copy.deepcopy(one), hits_me=hits_me)


def entry(event_id, vm, phase="drained", actor="ansible", kind="Reboot", left=900):
    """What the journal says of one event and VM."""
    phases = ["draining"] if phase == "draining" else ["draining", phase]
    return {
        "event_id": event_id,
        "vm": vm,
        "event_type": kind,
        "resources": [vm],
        "not_before": None if left is None else at(left),
        "phase": phase,
        "is_open": phase != "closed",
        "steps": [{"phase": reached, "at": NOW, "actor": actor} for reached in phases],
        "changes": [],
        "approved_at": None,
        "approved_by": None,
        "closed_because": "restored" if phase == "closed" else None,
    }


def fleet(domains, *events, **more):
    """An availability set: every VM sees every event."""
    return {name: answer(name, *events, domain=domain, **more) for name, domain in domains.items()}


def make(answers, **options):
    return plan(answers, now=NOW, **options)


def the_event(made, event_id="E1"):
    (found,) = [one for one in made["events"] if one["event_id"] == event_id]
    return found
