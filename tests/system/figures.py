# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of a case: requests sent and lost, and our own time in each batch, phase by phase."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from story import Story

# Seconds of our own that a batch may take, beyond the time that Azure takes from the approval to the end of the event.
LONGEST_BATCH = 15.0


class Batch(NamedTuple):
    """Seconds of our own in one batch. What lies between the approval and the end of the events is Azure's time."""

    hosts: tuple[str, ...]
    before: float  # from the start of the run, or the end of the batch before, to the journal's first line
    drain: float  # until the last VM is drained, without the time that the clients took
    gate: float  # until the last approval is sent
    notice: float  # from the end of the last event until the first restore begins
    restore: float  # until the last journal entry is closed
    clients: float  # from the first server in drain until the last session has ended, as seen at HAProxy
    azure: float  # from the last approval to the end of the last event

    @property
    def own(self) -> float:
        return self.before + self.drain + self.gate + self.notice + self.restore


def batches(story: Story) -> list[Batch]:
    """From the simulator's log and the journals; events of hosts in one domain are one batch."""
    log = story.scene.log("state", "approval")
    offset = _offset(log)
    found: list[tuple[float, Batch]] = []
    domains = sorted({host.domain for event in story.events for host in event.hosts})
    steps = {domain: _steps(story, domain) for domain in domains}
    edge = story.runs[0].started
    for domain in sorted(domains, key=lambda one: steps[one].get("draining", [0.0])[0]):
        ids = {event.event_id.lower() for event in story.events if any(host.domain == domain for host in event.hosts)}
        lines = [line for line in log if line["event"].lower() in ids]
        approved = max(line["mono"] for line in lines if line["kind"] == "approval")
        gone = max(line["mono"] for line in lines if line["kind"] == "state" and line["after"] == "gone")
        at = {phase: [moment - offset for moment in moments] for phase, moments in steps[domain].items()}
        begun, drained = min(at["draining"]), max(at["drained"])
        restoring, closed = min(at["restoring"]), max(at["closed"])
        clients = _clients(story, domain)
        batch = Batch(
            hosts=tuple(sorted({host.name for event in story.events for host in event.hosts if host.domain == domain})),
            before=begun - edge,
            drain=drained - begun - clients,
            gate=approved - drained,
            notice=restoring - gone,
            restore=closed - restoring,
            clients=clients,
            azure=gone - approved,
        )
        found.append((begun, batch))
        edge = closed
    return [batch for _begun, batch in sorted(found)]


def _offset(log: Sequence[dict[str, Any]]) -> float:
    """What is taken from the wall's clock to get the monotonic one: both are this machine's."""
    line = log[-1]
    return _seconds(line["wall"]) - float(line["mono"])


def _steps(story: Story, domain: int) -> dict[str, list[float]]:
    """When the hosts of a domain came to each phase, by their journals."""
    moments: dict[str, list[float]] = {}
    for host in story.hosts:
        if host.domain != domain:
            continue
        for entry in story.entries(host):
            for step in entry["steps"]:
                moments.setdefault(step["phase"], []).append(_seconds(step["at"]))
    return moments


def _clients(story: Story, domain: int) -> float:
    """How long the clients took to finish what they had begun."""
    names = {host.name for host in story.hosts if host.domain == domain}
    lines = [line for line in story.record() if line["host"] in names and line["verb"] == "drain"]
    begins = [line["mono"] for line in lines if line["outcome"] == "begins"]
    done = [line["mono"] for line in lines if line["outcome"] == "done"]
    return float(max(done) - min(begins)) if begins and done else 0.0


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


class Count(NamedTuple):
    """The requests of a case."""

    sent: int
    slow: int
    lost: int
    lost_slow: int
    why: str

    def __str__(self) -> str:
        return f"{self.lost} of {self.sent} lost" + (f" ({self.why})" if self.lost else "")


def count(story: Story) -> Count:
    requests = story.requests()
    lost = [one for one in requests if one.is_lost]
    reasons = Counter(one.error.partition(":")[0] or f"status {one.status}" for one in lost)
    why = ", ".join(f"{number} {reason}" for reason, number in reasons.most_common())
    return Count(
        len(requests),
        sum(one.kind.startswith("slow") for one in requests),
        len(lost),
        sum(one.kind.startswith("slow") for one in lost),
        why,
    )


def slack(story: Story) -> float:
    """Seconds that were left before NotBefore when the latest approval was sent."""
    left = []
    for line in story.scene.log("approval"):
        if line["event"].lower() in {event.event_id.lower() for event in story.events} and line["not_before"]:
            left.append(_seconds(line["not_before"]) - _seconds(line["wall"]))
    return min(left)


def dump(value: object) -> str:
    return json.dumps(value, indent=1)
