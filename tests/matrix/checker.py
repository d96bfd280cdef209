# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proves after each case that the rules of the design were kept, from what others wrote down: the simulator's log, the
workloads' record and the journals. Nothing here looks at what the playbook said of itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from world import Announced, Host, World

# Seconds: how much earlier than it has to a forced drain may begin. A scan lies between the plan and the drain.
FORCED_EARLY = 10
# What a workload is told that must not fail, if anything is to be approved afterwards.
OURS = ("drain", "restore", "health")


class Outage(NamedTuple):
    """A host out of service by our doing: from the moment its drain begins until it is back."""

    host: Host
    begins: float
    ends: float


class Approval(NamedTuple):
    """An approval as Azure got it."""

    at: float
    wall: datetime
    event: Announced
    outcome: str


class Checker:
    """The rules, each a generator of what breaks it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._record = world.record()
        self._by_id = {event.event_id.lower(): event for event in world.events}
        self._states = [line for line in world.azure.log("state") if line["event"].lower() in self._by_id]
        self._approvals = [
            Approval(line["mono"], parse(line["wall"]), self._by_id[line["event"].lower()], line["outcome"])
            for line in world.azure.log("approval")
            if line["event"].lower() in self._by_id
        ]

    def broken(self) -> list[str]:
        rules = [
            self._approved_only_when_all_are_drained,
            self._no_two_domains_out_together,
            self._all_that_was_drained_is_back,
            self._only_what_was_drained_is_restored,
            self._restored_only_when_the_event_is_gone,
            self._drained_in_time,
            self._nothing_approved_after_a_failure,
            self._one_event_is_approved_once,
            self._check_mode_touches_nothing,
            self._the_journal_was_written_before_the_drain,
        ]
        return [problem for rule in rules for problem in rule()]

    # Rules 1 and 8

    def _approved_only_when_all_are_drained(self) -> Iterator[str]:
        for approval in self._approvals:
            if approval.event.event_id in self._world.needs_no_drain:
                continue
            for vm in approval.event.strangers if not self._world.approves_unmanaged else ():
                yield f"rule 1: {approval.event.event_id} was approved, and {vm} is not managed"
            for host in approval.event.hosts:
                if not self._is_out(host, approval.at):
                    yield f"rule 1: {approval.event.event_id} was approved while {host.name} was in service"
                if not self._was_noted_as_drained(host, approval):
                    yield f"rule 1: {approval.event.event_id} was approved, {host.name} had not noted it as drained"

    def _was_noted_as_drained(self, host: Host, approval: Approval) -> bool:
        if host.name in self._world.journal_was_damaged:
            return True
        steps = [step for entry in self._entries(host, approval.event) for step in entry["steps"]]
        return any(step["phase"] == "drained" and parse(step["at"]) <= approval.wall for step in steps)

    def _nothing_approved_after_a_failure(self) -> Iterator[str]:
        failures = [line for line in self._record if self._has_failed(line)]
        for run in self._world.runs:
            ended = run.ended or float("inf")
            during = [line for line in failures if run.started <= line["mono"] <= ended]
            if not during:
                continue
            first = min(during, key=lambda line: float(line["mono"]))
            for approval in self._approvals:
                if first["mono"] < approval.at <= ended:
                    yield (
                        f"rule 8: {approval.event.event_id} was approved in run {run.number}, after the"
                        f" {first['verb']} of {first['host']} had failed"
                    )

    # Rule 2

    def _no_two_domains_out_together(self) -> Iterator[str]:
        outages = [outage for host in self._world.hosts for outage in self._outages(host)]
        for i, one in enumerate(outages):
            for other in outages[i + 1 :]:
                if one.host.domain == other.host.domain or not (one.begins < other.ends and other.begins < one.ends):
                    continue
                if not self._is_one_event(one.host, other.host) and not self._is_forced(max(one, other, key=begin)):
                    yield f"rule 2: {one.host.name} and {other.host.name}, of two domains, were out together"

    def _is_one_event(self, one: Host, other: Host) -> bool:
        return any(one in event.hosts and other in event.hosts for event in self._world.events)

    def _is_forced(self, outage: Outage) -> bool:
        """Whether it had to begin by then, so that all batches are drained in time."""
        options = self._world.options
        seconds = options.get("maintenance_margin", 60)
        seconds += self._world.batches * options.get("maintenance_drain_timeout", 120) + FORCED_EARLY
        deadlines = [
            self._mono_of(line["not_before"], line)
            for line in self._states
            if outage.host in self._by_id[line["event"].lower()].hosts and line["after"] == "Scheduled"
        ]
        return any(outage.begins >= deadline - seconds for deadline in deadlines)

    # Rules 3 and 4

    def _all_that_was_drained_is_back(self) -> Iterator[str]:
        for host in self._world.hosts:
            if host.name in self._world.lost:
                continue
            is_out = (self._world.directory / "out" / host.name).exists()
            if is_out and host.name not in self._world.out_by_hand:
                yield f"rule 3: {host.name} is still out of service"
            if not is_out and host.name in self._world.out_by_hand:
                yield f"rule 4: {host.name} was taken out by hand, and is in service"
            for entry in self._world.entries(host):
                if entry["steps"][-1]["phase"] != "closed" and host.name not in self._world.may_stay_open:
                    phase = entry["steps"][-1]["phase"]
                    yield f"rule 3: the journal of {host.name} says {phase} for {entry['event_id']}"
            # What a controller that was killed has left expires by itself.
            was_killed = any(run.was_killed for run in self._world.runs)
            if (self._world.journal_dir(host) / "lease").exists() and not was_killed:
                yield f"rule 3: {host.name} still has a lease"

    def _only_what_was_drained_is_restored(self) -> Iterator[str]:
        hit = {host for event in self._world.events for host in event.hosts}
        for host in self._world.hosts:
            lines = self._of(host)
            if lines and host not in hit:
                yield f"rule 4: {host.name} was touched, and no event hits it"
            if lines and host.name in self._world.may_not_be_touched:
                yield f"rule 4: {host.name} was touched, which it was not to be"
            drained = False
            for line in lines:
                if line["verb"] == "drain":
                    drained = True
                elif line["verb"] == "restore" and line["outcome"] == "begins" and not drained:
                    yield f"rule 4: {host.name} was restored before it was drained"

    def _restored_only_when_the_event_is_gone(self) -> Iterator[str]:
        if self._world.restored_by_command:
            return
        for host in self._world.hosts:
            lines = self._of(host)
            for i, line in enumerate(lines):
                if line["verb"] != "restore" or line["outcome"] != "begins":
                    continue
                drains = [one["mono"] for one in lines[:i] if (one["verb"], one["outcome"]) == ("drain", "begins")]
                for event in self._world.events:
                    was_there = host in event.hosts and drains and self._scheduled_at(event) < max(drains)
                    if was_there and line["mono"] < self._gone_at(event):
                        yield f"rule 3: {host.name} was restored before {event.event_id} was gone"

    # Rule 5

    def _drained_in_time(self) -> Iterator[str]:
        for line in self._states:
            if line["after"] != "Started" or line["cause"] != "not_before":
                continue
            for host in self._by_id[line["event"].lower()].hosts:
                tried = any(one["mono"] < line["mono"] and self._has_failed(one) for one in self._of(host))
                excused = host.name in self._world.may_be_hit_undrained | self._world.out_by_hand
                if not self._is_out(host, line["mono"]) and not tried and not excused:
                    yield f"rule 5: {host.name} was in service when {line['event']} began"

    # Rules 6 and 7

    def _one_event_is_approved_once(self) -> Iterator[str]:
        for event in self._world.events:
            sent = [approval for approval in self._approvals if approval.event == event]
            if len(sent) > self._world.most_approval_requests:
                yield f"rule 6: {len(sent)} approvals of {event.event_id} were sent"

    def _check_mode_touches_nothing(self) -> Iterator[str]:
        for run in self._world.runs:
            if not run.is_check:
                continue
            ended = run.ended or float("inf")
            for line in self._record:
                if run.started <= line["mono"] <= ended:
                    yield f"rule 7: {line['verb']} of {line['host']} in check mode"
            for approval in self._approvals:
                if run.started <= approval.at <= ended:
                    yield f"rule 7: {approval.event.event_id} was approved in check mode"

    # Rule 3, the journal: what is not in it is not restored by the next run

    def _the_journal_was_written_before_the_drain(self) -> Iterator[str]:
        for host in self._world.hosts:
            if host.name in self._world.journal_was_damaged:
                continue
            if any(line["verb"] == "drain" for line in self._of(host)) and not self._world.entries(host):
                yield f"rule 3: {host.name} was drained, and its journal is empty"

    # What was written down

    def _has_failed(self, line: dict[str, Any]) -> bool:
        return line["verb"] in OURS and (line["outcome"] == "failed" or not self._is_finished(line))

    def _is_finished(self, beginning: dict[str, Any]) -> bool:
        """Whether what began was not killed, by its time or with its controller."""
        if beginning["outcome"] != "begins":
            return True
        following = [
            line
            for line in self._record
            if (line["host"], line["verb"]) == (beginning["host"], beginning["verb"])
            and line["mono"] > beginning["mono"]
        ]
        return bool(following) and min(following, key=lambda line: float(line["mono"]))["outcome"] != "begins"

    def _of(self, host: Host) -> list[dict[str, Any]]:
        return [line for line in self._record if line["host"] == host.name]

    def _entries(self, host: Host, event: Announced) -> list[dict[str, Any]]:
        key = event.event_id.lower()
        return [entry for entry in self._world.entries(host) if entry["event_id"].lower() == key]

    def _is_out(self, host: Host, at: float) -> bool:
        is_out = host.name in self._world.out_by_hand
        for line in self._of(host):
            if line["mono"] > at:
                break
            if (line["verb"], line["outcome"]) == ("drain", "done"):
                is_out = True
            elif (line["verb"], line["outcome"]) in (("restore", "begins"), ("drain", "failed")):
                is_out = False
        return is_out

    def _outages(self, host: Host) -> Iterator[Outage]:
        begins = None
        for line in self._of(host):
            if line["verb"] == "drain" and begins is None:
                begins = line["mono"]
            elif (line["verb"], line["outcome"]) == ("restore", "done") and begins is not None:
                yield Outage(host, begins, line["mono"])
                begins = None
        if begins is not None and any(line["outcome"] == "done" for line in self._of(host)):
            yield Outage(host, begins, float("inf"))

    def _scheduled_at(self, event: Announced) -> float:
        return self._moment(event, "Scheduled", float("-inf"))

    def _gone_at(self, event: Announced) -> float:
        return self._moment(event, "gone", float("inf"))

    def _moment(self, event: Announced, state: str, default: float) -> float:
        found = [line["mono"] for line in self._states if line["event"] == event.event_id and line["after"] == state]
        return float(found[0]) if found else default

    @staticmethod
    def _mono_of(wall: str, line: dict[str, Any]) -> float:
        """A moment of the wall's clock on the monotonic one, by a line that has both."""
        return float(line["mono"] + (parse(wall) - parse(line["wall"])).total_seconds())


def begin(outage: Outage) -> float:
    return outage.begins


def parse(moment: str) -> datetime:
    return datetime.fromisoformat(moment)
