# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rolling run decides between its tasks. Pure functions of the plan, of fresh answers and of the clock.

Nothing here trusts the flow of a play: whether an event may be approved is asked of every VM that it hits.
"""

from datetime import datetime, timedelta
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from ansible_collections.azops.maintenance.plugins.module_utils._document import (
    SCHEDULED,
    STARTED,
    name_key,
    parse_time,
)
from ansible_collections.azops.maintenance.plugins.module_utils._errors import InputError
from ansible_collections.azops.maintenance.plugins.plugin_utils._scan import (
    WATCHER,
    drained_by,
    is_answer,
)

SETTLED = ("approved", "already_approved", "already_started", "gone")
DRAINED_PHASES = ("drained", "approved")
BALANCER_BACKEND = "haproxy_server"
LAST_TYPES = ("preempt", "terminate")
SHORTEST_DRAIN = 5


class Decision(NamedTuple):
    """Whether an event is approved now, by which host, and why."""

    event_id: str
    approve: bool
    why: str
    approver: Optional[str] = None
    is_trouble: bool = False


# The lease


def lease_verdict(
    leases: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]
) -> Dict[str, Dict[str, Any]]:
    """By scope, why its lease is not held, and whether another run has it. More than half of the votes are needed, and
    nobody else may have one. What a host says that has no vote is looked at only for somebody else: two runs that each
    reach one half of a scope must not both have it."""
    answers: Dict[str, List[Mapping[str, Any]]] = {}
    votes: Dict[str, Dict[str, Mapping[str, Any]]] = {}
    for lease, result in zip(leases, results):
        answers.setdefault(lease["scope"], []).append(result)
        by_host = votes.setdefault(lease["scope"], {})
        if lease.get("has_vote", True):
            by_host[lease["host"]] = result
    verdicts = {scope: _taken(scope, answers[scope]) or _too_few(scope, votes[scope]) for scope in answers}
    return {scope: missing for scope, missing in verdicts.items() if missing is not None}


def _taken(scope: str, answers: Sequence[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    for answer in answers:
        if answer.get("lease") and not answer.get("lease_held"):
            why = (
                "another run works on {0}: {1[run_id]} on {1[controller]}, process {1[pid]}, until {1[expires_at]}"
                " unless it renews; let it finish, or set maintenance_takeover=true if it is dead"
            ).format(scope, answer["lease"])
            return {"why": why, "by_other": True}
    return None


def _too_few(scope: str, votes: Mapping[str, Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    without = [host for host, vote in votes.items() if not vote.get("lease_held")]
    held = len(votes) - len(without)
    if 2 * held > len(votes):
        return None
    reasons = ["{0}: {1}".format(host, votes[host].get("msg") or "no reason given") for host in without]
    why = "only {0} of {1} VMs of {2} gave their lease, reach the others, then run this again ({3})".format(
        held, len(votes), scope, "; ".join(reasons)
    )
    return {"why": why, "by_other": False}


# What a host has to do


def batch_work(
    plan: Mapping[str, Any], host: str, answer: Any, now: datetime, blocked: Mapping[str, str]
) -> Dict[str, Any]:
    """All that one host has to know of its part in its batch, by what it answered last."""
    batch = plan["batches"][plan["hosts"][host]["batch"] - 1]
    together = [event for event in plan["events"] if event["batch"] == batch["number"]]
    planned = [event for event in together if host in event["hosts"]]
    live = _live_events(answer)
    is_held_up = _held_up(plan, batch, blocked) is not None
    start_in = _start_in(batch, together, is_held_up, now)
    is_for_later = start_in > plan["options"]["longest_wait"]
    to_drain = [] if is_for_later else [event for event in planned if event["drain"] and _may_come(answer, live, event)]
    return {
        "batch": batch["number"],
        "vm": plan["hosts"][host]["vm"],
        "events": [_for_journal(event) for event in planned],
        "drained_for": [_for_journal(event) for event in to_drain],
        "drain": bool(to_drain),
        "drain_seconds": _drain_seconds(plan, to_drain, now),
        "seconds_to_start": _seconds_until(batch["must_start_by"], now),
        "start_in": 0 if is_for_later else start_in,
        "is_for_later": is_for_later,
        "is_over": is_answer(answer) and all(_status(live, event) is None for event in planned),
        "comes_back": _comes_back(planned),
        "witnesses": _witnesses(planned),
        "wait_seconds": 1 if is_for_later else wait_seconds(plan, batch, planned, is_held_up, now),
    }


def _start_in(batch: Mapping[str, Any], events: Sequence[Mapping[str, Any]], is_held_up: bool, now: datetime) -> int:
    """In how many seconds a batch starts: at once if it gets an approval, or if Azure may start at any moment; else as
    late as it may, since it stays out until Azure starts by itself."""
    may_approve = not is_held_up and any(event["approve"] for event in events)
    if may_approve or any(event["not_before"] is None for event in events):
        return 0
    return _seconds_until(batch["must_start_by"], now)


def _may_come(answer: Any, live: Mapping[str, Mapping[str, Any]], event: Mapping[str, Any]) -> bool:
    """Whether an event is still ahead of a host. One that does not say what it sees is drained by what was planned."""
    return not is_answer(answer) or _status(live, event) not in (None, STARTED)


def _drain_seconds(plan: Mapping[str, Any], events: Sequence[Mapping[str, Any]], now: datetime) -> int:
    left = [_seconds_until(event["not_before"], now) for event in events if event["not_before"]]
    return max(SHORTEST_DRAIN, min([plan["options"]["drain_timeout"], *left]))


def wait_seconds(
    plan: Mapping[str, Any],
    batch: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    is_held_up: bool,
    now: datetime,
) -> int:
    """How long to wait for events to be over: until the next step has to start, at most the user's limit; for one that
    nobody approves the limit counts from its own time on."""
    unapproved = [_seconds_until(event["not_before"], now) for event in events if is_held_up or not event["approve"]]
    longest = plan["options"]["longest_wait"] + max(unapproved, default=0)
    return max(1, min([longest, *_starts_of_step(plan, batch["step"] + 1, now)]))


def _starts_of_step(plan: Mapping[str, Any], step: int, now: datetime) -> List[int]:
    """In how many seconds the batches of a step have to start; those of later steps never have to start earlier."""
    batches = [batch for batch in plan["batches"] if batch["step"] == step and batch["must_start_by"]]
    return [_seconds_until(batch["must_start_by"], now) for batch in batches]


def open_work(plan: Mapping[str, Any], host: str, answer: Any, now: datetime) -> Dict[str, Any]:
    """What has to be over before batches begin: what is open in the host's own journal and not part of a batch, as an
    earlier batch or a run that ended before its time left it; what other hosts have in theirs for its VM, whose own
    disk a redeploy may have wiped; and what Azure has started on it. It is waited for until the first batch has to
    start."""
    work: Dict[str, Any] = {
        "events": [],
        "restore": [],
        "vm": None,
        "comes_back": True,
        "wait_seconds": 0,
        "witnesses": [],
    }
    if not is_answer(answer) or host not in plan["hosts"]:
        return work
    own = [entry for entry in own_open_entries(answer) if drained_by(entry) != WATCHER]
    entries = _united([_for_journal(entry) for entry in own], _changes_elsewhere(plan, host))
    met = {name_key(event["event_id"]) for event in plan["events"] if event["batch"] and host in event["hosts"]}
    if any(name_key(entry["event_id"]) in met for entry in entries):
        return work
    live = _live_events(answer)
    started = [event for event in live.values() if event["hits_me"] and event["event_status"] == STARTED]
    events = {name_key(event["event_id"]): event for event in _united(entries, [_for_journal(one) for one in started])}
    known = [event for event in plan["events"] if name_key(event["event_id"]) in events]
    work.update(
        vm=answer["vm"]["name"],
        events=list(events.values()),
        restore=entries,
        comes_back=_comes_back(events.values()),
        wait_seconds=max(1, min([_patience(plan, known, now), *_starts_of_step(plan, 1, now)])),
        witnesses=_witnesses(known),
    )
    return work


def _changes_elsewhere(plan: Mapping[str, Any], host: str) -> List[Dict[str, Any]]:
    vm = _vm_key(plan, host)
    return [
        {"event_id": entry["event_id"], "event_type": "Unknown", "resources": [], "not_before": None}
        for entry in plan["open"]
        if name_key(entry["vm"]) == vm and _vm_key(plan, entry["host"]) != vm and entry["actor"] != WATCHER
    ]


def _united(first: Sequence[Dict[str, Any]], second: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Events of both, each once; what the first says of one counts."""
    found = {name_key(event["event_id"]): event for event in [*second, *first]}
    return list(found.values())


def _patience(plan: Mapping[str, Any], events: Sequence[Mapping[str, Any]], now: datetime) -> int:
    """How long to wait for events that are not approved in this run. One that is further away than the user's limit is
    not waited for at all."""
    longest = int(plan["options"]["longest_wait"])
    latest = max((_seconds_until(event["not_before"], now) for event in events), default=0)
    return 0 if latest > longest else longest + latest


def own_open_entries(answer: Any) -> List[Mapping[str, Any]]:
    """What is open in a host's journal for its own VM."""
    if not is_answer(answer) or not answer.get("journal"):
        return []
    vm = name_key(answer["vm"]["name"])
    return [entry for entry in answer["journal"]["entries"] if entry["is_open"] and name_key(entry["vm"]) == vm]


def open_entries(entries: Sequence[Mapping[str, Any]], vm: Optional[str]) -> Dict[str, Any]:
    """What is open in a journal for one VM and was not drained by its own watcher. Where the VM's name is not known,
    because its metadata service is away, it is the one that all open entries are about, but for those that a balancer
    has for others."""
    is_open = [entry for entry in entries if entry["is_open"] and drained_by(entry) != WATCHER]
    names = {name_key(entry["vm"]): entry["vm"] for entry in is_open if not _is_made_for_others(entry)}
    if vm is None and len(names) > 1:
        raise InputError(
            "The journal has open entries of {0}, and the VM does not say which of them it is.".format(
                ", ".join(names.values())
            ),
            "Bring its metadata service back, or set maintenance_vm.",
        )
    own = next(iter(names), None) if vm is None else name_key(vm)
    found = [entry for entry in is_open if name_key(entry["vm"]) == own]
    return {"vm": vm or names.get(own or ""), "restore": [_for_journal(entry) for entry in found]}


def _is_made_for_others(entry: Mapping[str, Any]) -> bool:
    backends = {change["backend"] for change in entry["changes"]}
    return backends == {BALANCER_BACKEND}


# The approval gate


def approval_gate(
    plan: Mapping[str, Any],
    hosts: Sequence[str],
    answers: Mapping[str, Any],
    blocked: Mapping[str, str],
    tried: Sequence[Mapping[str, Any]],
) -> List[Decision]:
    """For each event of the hosts' batches: may it be approved, and by whom? Every VM that it hits must have answered
    afresh that it is drained for it; what is not known counts as no."""
    batches = {plan["hosts"][host]["batch"] for host in hosts}
    events = [event for event in plan["events"] if event["batch"] in batches and event["batch"] is not None]
    tried_by: Dict[str, List[Mapping[str, Any]]] = {}
    for one in tried:
        tried_by.setdefault(name_key(one["event_id"]), []).append(one)
    return [_decide(plan, event, answers, blocked, tried_by.get(name_key(event["event_id"]), [])) for event in events]


def _decide(
    plan: Mapping[str, Any],
    event: Mapping[str, Any],
    answers: Mapping[str, Any],
    blocked: Mapping[str, str],
    tried: Sequence[Mapping[str, Any]],
) -> Decision:
    event_id = event["event_id"]
    if not event["approve"]:
        return Decision(event_id, False, event["why"])
    asked = [(host, answers.get(host)) for host in event["hosts"]]
    statuses = {_status(_live_events(answer), event) for _host, answer in asked if is_answer(answer)}
    if STARTED in statuses:
        return Decision(event_id, False, "Azure has started already")
    if statuses == {None}:
        return Decision(event_id, False, "it is gone, Azure has cancelled it")
    held_up = _held_up(plan, plan["batches"][event["batch"] - 1], blocked)
    if held_up is not None:
        return Decision(event_id, False, held_up)
    for one in tried:
        if one.get("is_lost") and not is_answer(answers.get(one["approver"])):
            why = "{0} was lost while it approved, so Azure may have started".format(one["approver"])
            return Decision(event_id, False, why)
    obstacle = _unreached(plan, event)
    if obstacle is None:
        obstacles = [_objection(plan, event, host, answer) for host, answer in asked]
        obstacle = next((words for words in obstacles if words is not None), None)
    if obstacle is not None:
        return Decision(event_id, False, obstacle, is_trouble=True)
    approvers = [host for host in _by_rank(plan, event) if host not in [one["approver"] for one in tried]]
    if not approvers:
        return Decision(event_id, False, "none of its VMs could send the approval", is_trouble=True)
    return Decision(event_id, True, event["why"], approvers[0])


def not_approved(decisions: Sequence[Mapping[str, Any]], attempts: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """The decisions to approve that came to nothing. A VM that went away before it answered may have approved all the
    same, since Azure may reboot it at once; such a decision is_lost."""
    outcomes = [outcome for attempt in attempts for outcome in attempt.get("results") or []]
    settled = {name_key(outcome["event_id"]) for outcome in outcomes if outcome["outcome"] in SETTLED}
    said_why = {
        name_key(attempt["decision"]["event_id"])
        for attempt in attempts
        if attempt.get("results") or attempt.get("error_kind")
    }
    return [
        dict(one, is_lost=name_key(one["event_id"]) not in said_why)
        for one in decisions
        if one["approve"] and name_key(one["event_id"]) not in settled
    ]


def _unreached(plan: Mapping[str, Any], event: Mapping[str, Any]) -> Optional[str]:
    if plan["options"]["approve_unmanaged"]:
        return None
    known = {_vm_key(plan, host) for host in event["hosts"]}
    strangers = [vm for vm in event["resources"] if name_key(vm) not in known]
    return "not reached: {0}".format(", ".join(strangers)) if strangers else None


def _objection(plan: Mapping[str, Any], event: Mapping[str, Any], host: str, answer: Any) -> Optional[str]:
    """Why this VM stands against the approval."""
    if not is_answer(answer):
        return "{0} does not answer".format(host)
    if name_key(answer["vm"]["name"]) != _vm_key(plan, host):
        return "{0} is another VM now, {1}".format(host, answer["vm"]["name"])
    if answer.get("held_by"):
        return "{0} is held by {1}".format(host, answer["held_by"])
    live = _live_events(answer).get(name_key(event["event_id"]))
    if live is None:
        return "{0} does not see the event".format(host)
    if live["event_status"] != SCHEDULED:
        return "its status is {0}".format(live["event_status"])
    if {name_key(vm) for vm in live["resources"]} != {name_key(vm) for vm in event["resources"]}:
        return "it hits {0} now, not {1} as planned".format(", ".join(live["resources"]), ", ".join(event["resources"]))
    if not event["drain"]:
        return None
    if not answer.get("journal"):
        return "the journal of {0} cannot be read: {1}".format(host, answer.get("journal_error") or "no reason given")
    entries = [
        entry for entry in own_open_entries(answer) if name_key(entry["event_id"]) == name_key(event["event_id"])
    ]
    if not entries:
        return "{0} is not drained".format(host)
    if entries[0]["phase"] not in DRAINED_PHASES:
        return "{0} is not drained, its journal says {1}".format(host, entries[0]["phase"])
    return None


def _by_rank(plan: Mapping[str, Any], event: Mapping[str, Any]) -> List[str]:
    """The leader first; of a VM under several names, each of them."""
    ranks = {name_key(vm): rank for rank, vm in enumerate(event["resources"])}
    return sorted(event["hosts"], key=lambda host: ranks.get(_vm_key(plan, host), len(ranks)))


def _held_up(plan: Mapping[str, Any], batch: Mapping[str, Any], blocked: Mapping[str, str]) -> Optional[str]:
    """Why nothing is approved in a batch: something went wrong in its scope, or another domain of it is out."""
    for host, why in blocked.items():
        scope = plan["hosts"][host]["scope"] if host in plan["hosts"] else None
        if scope in batch["scopes"]:
            return "nothing more is approved in {0}: {1}".format(scope, why)
    for out in batch["waits_for"]:
        return "{0} of another domain is out of service: {1}".format(out["host"], out["why"])
    return None


def batch_troubles(
    plan: Mapping[str, Any],
    hosts: Sequence[str],
    alive: Sequence[str],
    failures: Mapping[str, str],
    unsettled: Mapping[str, str],
) -> Dict[str, Any]:
    """What went wrong on the hosts of a batch. Nothing is approved any more in their scopes, nor where a host is not
    back yet; the latter is no trouble if it comes back later. All hosts of such a scope are named as blocked: what the
    scope is called may change from one plan to the next, when a host is lost for example."""
    here = set(alive)
    troubles = []
    scopes: Dict[str, str] = {}
    for host in hosts:
        why = failures.get(host) or (None if host in here else _left_the_play(plan, host))
        if why:
            troubles.append({"host": host, "why": why})
        if why or unsettled.get(host):
            scopes.setdefault(plan["hosts"][host]["scope"], "{0}: {1}".format(host, why or unsettled[host]))
    blocked = {name: scopes[host["scope"]] for name, host in plan["hosts"].items() if host["scope"] in scopes}
    return {"troubles": troubles, "blocked": blocked}


def _left_the_play(plan: Mapping[str, Any], host: str) -> str:
    events = [event["event_id"] for event in plan["events"] if event["batch"] is not None and host in event["hosts"]]
    return "it failed or was lost half way{0}; see what its last task said, reach it, then run this again".format(
        " through event {0}".format(", ".join(events)) if events else ""
    )


# The end of a run


def verdict(plan: Mapping[str, Any], troubles: Sequence[Mapping[str, Any]], lost: Sequence[str]) -> Dict[str, Any]:
    """Whether the fleet is whole, and if not, what is left and what to do."""
    left = ["{0[host]}: {0[why]}".format(trouble) for trouble in troubles]
    if plan["silent"] and not plan["hosts"]:
        left.append(
            "None of the {0} hosts answered, so nothing was done. {1[host]}: {1[why]}. Reach them, then run this"
            " again.".format(len(plan["silent"]), plan["silent"][0])
        )
    left += [
        "{0}: it does not answer any more. Look at it in the Azure portal; once it is back, run this again, which puts"
        " back what was drained.".format(host)
        for host in lost
    ]
    left += [
        "Event {0} is still announced, and nobody reaches {1}; hosts of the target do not answer. Reach them, then run"
        " this again.".format(event["event_id"], ", ".join(event["unmanaged"]))
        for event in plan["events"]
        if event["skipped"] == "unmanaged" and any(silent["kind"] != "not_azure" for silent in plan["silent"])
    ]
    left += [
        "{0[host]}: {0[phase]} for event {0[event_id]}, {0[why]}. Run this again, or run azops.maintenance.restore to"
        " put it back now.".format(entry)
        for entry in plan["open"]
        if entry["actor"] != WATCHER
        and (_vm_key(plan, entry["host"]) == name_key(entry["vm"]) or entry["state"] == "gone")
    ]
    left += [
        "{0}: event {1} is still to be met. Run this again.".format(", ".join(event["hosts"]), event["event_id"])
        for batch in plan["batches"]
        if not batch["is_for_later"]
        for event in plan["events"]
        if event["batch"] == batch["number"]
    ]
    left += [
        "{0}: event {1}: {2}. Look at the service there; run this again when it is over.".format(
            ", ".join(event["hosts"]) or "nobody", event["event_id"], event["why"]
        )
        for event in plan["events"]
        if event["skipped"] == "too_late"
    ]
    return {"converged": not left, "left": list(dict.fromkeys(left)), "lost": list(lost)}


# What the answers and the plan say


def _live_events(answer: Any) -> Dict[str, Mapping[str, Any]]:
    if not is_answer(answer):
        return {}
    return {name_key(event["event_id"]): event for event in answer["events"]}


def _status(live: Mapping[str, Mapping[str, Any]], event: Mapping[str, Any]) -> Optional[str]:
    found = live.get(name_key(event["event_id"]))
    return None if found is None else str(found["event_status"])


def _for_journal(event: Mapping[str, Any]) -> Dict[str, Any]:
    return {key: event[key] for key in ("event_id", "event_type", "resources", "not_before")}


def _comes_back(events: Iterable[Mapping[str, Any]]) -> bool:
    return not any(event["event_type"].lower() in LAST_TYPES for event in events)


def _witnesses(events: Sequence[Mapping[str, Any]]) -> List[str]:
    """Hosts that see all of these events from outside."""
    if not events:
        return []
    return [host for host in events[0]["witnesses"] if all(host in event["witnesses"] for event in events)]


def _vm_key(plan: Mapping[str, Any], host: str) -> str:
    return name_key(plan["hosts"][host]["vm"])


def _seconds_until(moment: Optional[str], now: datetime) -> int:
    if moment is None:
        return 0
    return max(0, int((parse_time(moment) - now) / timedelta(seconds=1)))
