# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One case on the scene: the load, somebody who watches HAProxy, runs of the playbook, and what they wrote down.

What the watcher of HAProxy sees is put in the same form as what the matrix's workloads write, so that the rules are
checked by the same checker: a server in drain without sessions is out, one that is ready again is back.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scene import BALANCER, HERE, PORT, Program, Scene, Server

from checker import Checker  # isort: skip
from world import Announced, CaseFailed, Core, Host, Run, World, read_lines  # isort: skip

LOOK_EVERY = 0.1  # seconds


class Request(NamedTuple):
    """One request of the load, as it was written down."""

    began: float
    ended: float
    kind: str
    server: str
    status: int
    error: str
    again: bool

    @property
    def is_lost(self) -> bool:
        return bool(self.error) or self.status != 200


class Watch:
    """Looks at HAProxy all the time and writes down when a server goes out and comes back."""

    def __init__(self, scene: Scene, record: Path) -> None:
        self._scene = scene
        self._record = record.open("w", encoding="utf-8")
        self._before: dict[str, Server] = scene.servers()
        self._emptied: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._record.close()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY):
            for name, server in self._scene.servers().items():
                self._compare(name, self._before.get(name, server), server)
                self._before[name] = server

    def _compare(self, name: str, before: Server, now: Server) -> None:
        if now.is_drained and not before.is_drained:
            self._write(name, "drain", "begins")
            self._emptied.discard(name)
        if now.is_drained and now.sessions == 0 and name not in self._emptied:
            self._write(name, "drain", "done")
            self._emptied.add(name)
        if before.is_drained and not now.is_drained:
            self._emptied.discard(name)
            self._write(name, "restore", "begins")
            self._write(name, "restore", "done")

    def _write(self, host: str, verb: str, outcome: str) -> None:
        line = {"mono": time.monotonic(), "host": host, "verb": verb, "outcome": outcome}
        self._record.write(json.dumps(line) + "\n")
        self._record.flush()


class Log:
    """The simulator's log, for the checker."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def log(self, *kinds: str) -> list[dict[str, Any]]:
        return self._scene.log(*kinds)


class Story(World):
    """A case: the matrix's world, with real hosts."""

    def __init__(self, scene: Scene, name: str, hosts: Sequence[Host] = ()) -> None:
        # Not the matrix's own beginning: it would start a fleet on this machine.
        self.scene = scene
        self.name = name
        self.directory = scene.directory / name.replace(" ", "_")
        self.directory.mkdir(parents=True)
        (self.directory / "out").mkdir()
        self.hosts = list(hosts or scene.web)
        self.core = Core("", scene.playbook, {})
        self.events: list[Announced] = []
        self.runs: list[Run] = []
        self.options: dict[str, Any] = {"maintenance_drain_timeout": 30, "maintenance_margin": 5}
        self.out_by_hand: set[str] = set()
        self.lost: set[str] = set()
        self.may_stay_open: set[str] = set()
        self.may_be_hit_undrained: set[str] = set()
        self.may_not_be_touched: set[str] = set()
        self.journal_was_damaged: set[str] = set()
        self.needs_no_drain: set[str] = set()
        self.approves_unmanaged = False
        self.restored_by_command = False
        self.keeps_leases = False
        self.most_approval_requests = 1
        self.began = time.monotonic()
        self.ended: float | None = None
        self.azure = Log(scene)  # type: ignore[assignment]  # the only part of it that is used

    @property
    def batches(self) -> int:
        return len({host.domain for event in self.events for host in event.hosts})

    # Azure

    def announce_event(self, hosts: Sequence[Host], kind: str = "Reboot", **more: Any) -> Announced:
        made = self.scene.azure("schedule", type=kind, vms=[host.vm for host in hosts], **more)
        self.events.append(Announced(str(made["event"]), tuple(hosts)))
        return self.events[-1]

    def announce_wave(self, notices: Sequence[float]) -> None:
        """Events for one VM and for two: Redeploy, Freeze, Reboot. In the full form all three domains."""
        web, form = self.scene.web, self.scene.form
        self.announce_event([web[0]], "Redeploy", notice=notices[0])
        self.announce_event([web[3]], "Freeze", notice=notices[0], duration=form.freeze)
        self.announce_event([web[1], web[4]], notice=notices[1])
        if form.name == "full":
            self.announce_event([web[2]], notice=notices[2])
            self.announce_event([web[5]], notice=notices[2])

    def state(self, event: Announced) -> str:
        states = [line for line in self.scene.log("state") if line["event"].lower() == event.event_id.lower()]
        return str(states[-1]["after"])

    def until_all_gone(self) -> None:
        for event in self.events:
            self.until_gone(event)

    def until_whole(self) -> None:
        self.until(lambda: len(self.scene.servers_up()) == len(self.scene.web), "HAProxy to find all servers up")

    # Journals: read from the hosts themselves

    def journal_dir(self, host: Host) -> Path:
        return self.scene.journal(host.name)

    # Runs

    def roll(self, *arguments: str, playbook: str = "rolling", **variables: Any) -> Run:
        number = len(self.runs) + 1
        name = playbook if "/" in playbook else f"azops.maintenance.{playbook}"
        target = "database" if self.hosts == self.scene.databases else "web"
        log = self.directory / f"run{number}.log"
        run = self.scene.roll(number, log, target, name, self.options | variables, arguments)
        self.runs.append(run)
        return run

    # The end

    def broken(self) -> list[str]:
        for name, server in self.scene.servers().items():
            if server.admin != 0:
                (self.directory / "out" / name).touch()
        # Events of other cases are in the journals, too; each case looks at its own.
        return Checker(self).broken() + list(self._served_in_spite_of_approval())

    def entries(self, host: Host) -> list[dict[str, Any]]:
        ours = {event.event_id.lower() for event in self.events}
        return [entry for entry in super().entries(host) if str(entry["event_id"]).lower() in ours]

    def _served_in_spite_of_approval(self) -> Iterator[str]:
        """Rule 1 once more, as the clients see it: nobody is served by a VM that Azure may interrupt any moment."""
        requests = self.requests()
        for line in self.scene.log("approval"):
            for event in self.events:
                if event.event_id.lower() != line["event"].lower():
                    continue
                over = self._moment_of(event, "gone")
                for host in event.hosts:
                    served = [one for one in requests if one.server == host.name and one.ended > line["mono"]]
                    early = [one for one in served if one.began < over]
                    if early:
                        yield f"rule 1: {len(early)} requests were served by {host.name} after the approval"

    def _moment_of(self, event: Announced, state: str) -> float:
        found = [line for line in self.scene.log("state") if line["event"].lower() == event.event_id.lower()]
        return next((float(line["mono"]) for line in found if line["after"] == state), float("inf"))

    def requests(self) -> list[Request]:
        return [
            Request(
                line["mono"],
                line["mono"] + line["duration"],
                line["kind"],
                line["server"],
                line["status"],
                line["error"],
                line["again"],
            )
            for line in read_lines(self.directory / "load.jsonl")
        ]

    def stop(self) -> None:
        for run in self.runs:
            run.stop()
        self.ended = time.monotonic()


@contextlib.contextmanager
def under_load(story: Story, requests: int = 0) -> Iterator[Story]:
    """Everything inside happens under load; it goes on until there were as many requests as are wanted."""
    scene = story.scene
    watch = Watch(scene, story.directory / "workload.jsonl")
    command = [sys.executable, "-B", str(HERE / "load.py"), scene.address(BALANCER), str(PORT), str(scene.form.rate)]
    load = Program([*command, str(story.directory / "load.jsonl")], story.directory / "load.out")
    finished = False
    try:
        yield story
        wanted = time.monotonic() + max(0.0, (requests - len(story.requests())) / scene.form.rate)
        while len(story.requests()) < requests and time.monotonic() < wanted + 120:
            time.sleep(1)
        finished = True
    finally:
        story.stop()
        if finished:
            load.stop()
        else:
            load.kill()
        watch.stop()


def keep_simulator_log(scene: Scene, destination: Path) -> None:
    import testbed

    with contextlib.suppress(OSError):
        shutil.copy2(testbed.SIMULATOR_LOG, destination / "simulator.jsonl")


__all__ = ["Announced", "CaseFailed", "Host", "Request", "Run", "Story", "keep_simulator_log", "under_load"]
