# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults under load. After each, the rules hold, the fleet is whole, and what was lost is what could not be kept."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import testbed
from figures import Count, count
from outcome import Outcome
from scene import BALANCER, Scene
from story import Announced, CaseFailed, Host, Request, Run, Story, under_load

# Seconds. A request that began so shortly after its server died was sent by HAProxy before it could know.
A_MOMENT = 0.5
# Of Azure's seconds.
A_MINUTE = 60


def controller_killed(phase: str) -> Callable[[Scene], Outcome]:
    """SIGKILL as soon as a host's journal says that it is in this phase; then the same command again."""

    def play(scene: Scene) -> Outcome:
        story = Story(scene, f"controller killed while {phase}")
        hit = [scene.web[0], scene.web[3]]
        with under_load(story):
            story.announce_event(hit, notice=scene.form.notices[0])
            run = story.roll()
            story.until(lambda: has_been(story, hit, phase), f"a host to be {phase}", run)
            run.kill()
            story.roll().ends(0)
            story.until_whole()
        # The second run cannot know whether the first one's approval has arrived.
        story.most_approval_requests = 2
        return nothing_lost(story)

    return play


def has_been(story: Story, hosts: Sequence[Host], phase: str) -> bool:
    steps = [step for host in hosts for entry in story.entries(host) for step in entry["steps"]]
    return any(step["phase"] == phase for step in steps)


def haproxy_reloaded(scene: Scene) -> Outcome:
    return _haproxy(scene, "reload")


def haproxy_restarted(scene: Scene) -> Outcome:
    return _haproxy(scene, "restart")


def _haproxy(scene: Scene, verb: str) -> Outcome:
    story = Story(scene, f"HAProxy {verb}ed")
    problems = []
    hit = scene.web[0]
    began = ended = 0.0
    with under_load(story):
        story.announce_event([hit], notice=scene.form.notices[0])
        with at_hook(story, "before_approve") as hold:
            run = story.roll(maintenance_hooks={"before_approve": str(hold)})
            story.until_phase(hit, "drained", run)
            began = time.monotonic()
            scene.execute(BALANCER, "systemctl", verb, "haproxy")
            ended = time.monotonic()
            story.until(lambda: bool(scene.servers()), "HAProxy to answer", run)
            if not scene.servers()[hit.name].is_drained:
                problems.append(f"{hit.name} was not drained any more after the {verb} of HAProxy")
        run.ends(0)
        story.until_whole()
    if verb == "reload":
        return nothing_lost(story, problems)
    return lost_only(story, lambda one: one.began <= ended + A_MOMENT and one.ended >= began, "HAProxy's own", problems)


def event_cancelled(scene: Scene) -> Outcome:
    story = Story(scene, "event cancelled after the drain")
    hit = scene.web[0]
    with under_load(story):
        event = story.announce_event([hit], notice=scene.form.notices[0])
        with at_hook(story, "before_approve") as hold:
            run = story.roll(maintenance_hooks={"before_approve": str(hold)})
            story.until_phase(hit, "drained", run)
            scene.azure("cancel", event=event.event_id)
        run.ends(0)
        story.until_whole()
    return nothing_lost(story)


def host_never_comes_back(scene: Scene) -> Outcome:
    story = Story(scene, "a host never comes back")
    hit, next_one = scene.web[0], scene.web[1]
    with under_load(story):
        event = story.announce_event([hit], notice=scene.form.notices[0])
        # The one with the later deadline comes second.
        story.announce_event([next_one], notice=2 * scene.form.notices[0])
        run = story.roll(maintenance_wait_timeout=40)
        story.until(lambda: was_hit(story, event), f"{hit.name} to be restarted", run)
        testbed.kill(testbed.host_named(hit.name))
        story.until(lambda: run.is_over, "the run to give up")
        code = run_code(run)
        approved = {line["event"].lower() for line in scene.log("approval")}
        testbed.start(testbed.host_named(hit.name))
        story.roll().ends(0)
        story.until_whole()
    problems = [] if code in (2, 4) else [f"the run ended with {code} though a host was lost"]
    if story.events[1].event_id.lower() in approved:
        problems.append("rule 5: the next domain was approved though a host was lost")
    return nothing_lost(story, problems)


def partition(scene: Scene) -> Outcome:
    """The controller does not reach one domain; HAProxy and the clients do."""
    story = Story(scene, "controller cut off from a domain")
    cut_off = [scene.web[1], scene.web[4]]
    with under_load(story):
        story.announce_event([scene.web[0]], notice=scene.form.notices[0])
        away = story.announce_event(cut_off, notice=scene.form.notices[0])
        for host in cut_off:
            blackhole(host, "add")
        try:
            run = story.roll()
            story.until(lambda: run.is_over, "the run to end")
        finally:
            for host in cut_off:
                blackhole(host, "del")
            hang_up()
        approved = {line["event"].lower() for line in scene.log("approval")}
        story.roll().ends(0)
        story.until_whole()
    problems = []
    if run_code(run) == 0:
        problems.append("rule 8: the run ended well though it did not reach two hosts that are hit")
    if away.event_id.lower() in approved:
        problems.append("rule 1: an event was approved whose VMs did not answer")
    return nothing_lost(story, problems)


def metadata_service_fails(scene: Scene) -> Outcome:
    story = Story(scene, "the metadata service fails for a minute")
    hit = scene.web[0]
    with under_load(story):
        story.announce_event([hit], notice=scene.form.notices[0])
        run = story.roll()
        story.until(lambda: has_been(story, [hit], "draining"), "the drain to begin", run)
        scene.azure("inject", kind="503", vms=[host.vm for host in scene.web])
        resumes = time.monotonic() + A_MINUTE
        story.until(lambda: time.monotonic() > resumes, "the minute to be over")
        scene.azure("clear_faults")
        story.until(lambda: run.is_over, "the run to end")
        if run_code(run) != 0:
            story.roll().ends(0)
        story.until_whole()
    story.most_approval_requests = 2
    outcome = nothing_lost(story)
    outcome.notes.append(f"the run ended with {run_code(run)}")
    return outcome


def hardware_fails(scene: Scene) -> Outcome:
    """A host dies unannounced; its event is born started. Another one is being drained meanwhile."""
    story = Story(scene, "hardware fails")
    dead, hit = scene.web[2], scene.web[0]
    with under_load(story):
        story.announce_event([hit], notice=scene.form.notices[0])
        run = story.roll()
        story.until(lambda: has_been(story, [hit], "draining"), "the drain to begin", run)
        died = time.monotonic()
        testbed.kill(testbed.host_named(dead.name))
        off = time.monotonic()
        made = scene.azure("fail_hardware", type="Redeploy", vms=[dead.vm])
        story.may_be_hit_undrained.add(dead.name)
        story.events.append(Announced(str(made["event"]), (dead,)))
        story.until(lambda: run.is_over, "the run to end")
        story.until_all_gone()
        if run_code(run) != 0:
            story.roll().ends(0)
        story.until_whole()
    outcome = lost_only(
        story, lambda one: one.began <= off + A_MOMENT and one.ended >= died, f"in flight on {dead.name} when it died"
    )
    outcome.notes.append(f"the first run ended with {run_code(run)}")
    return outcome


def two_controllers(scene: Scene) -> Outcome:
    story = Story(scene, "two controllers")
    with under_load(story):
        story.announce_event([scene.web[0], scene.web[3]], notice=scene.form.notices[0])
        story.announce_event([scene.web[1]], notice=scene.form.notices[0])
        runs = [story.roll(), story.roll()]
        for run in runs:
            story.until(lambda run=run: run.is_over, "both runs to end")  # type: ignore[misc]
        codes = [run_code(run) for run in runs]
        if any(codes):
            story.roll().ends(0)
        story.until_whole()
    problems = [] if 0 in codes else [f"no run ended well: {codes}"]
    outcome = nothing_lost(story, problems)
    outcome.notes.append(f"the runs ended with {codes[0]} and {codes[1]}")
    return outcome


# What they have in common


class at_hook:  # noqa: N801  # used like a function
    """A hook of the user's at which the run waits until the block is left."""

    def __init__(self, story: Story, hook: str) -> None:
        self._hold = story.directory / f"{hook}.hold"
        self._tasks = story.directory / f"{hook}.yml"

    def __enter__(self) -> Path:
        self._hold.touch()
        task = {
            "name": "Hold the run here",
            "ansible.builtin.wait_for": {"path": str(self._hold), "state": "absent", "timeout": 120},
            "delegate_to": "localhost",
            "become": False,
        }
        self._tasks.write_text(json.dumps([task]), encoding="utf-8")
        return self._tasks

    def __exit__(self, *_reason: object) -> None:
        self._hold.unlink()


def blackhole(host: Host, verb: str) -> None:
    """What the host sends to the machine is dropped, or no longer."""
    machine = testbed.run("ip", "-json", "-4", "address", "show", testbed.BRIDGE)
    address = json.loads(machine)[0]["addr_info"][0]["local"]
    testbed.ip("-n", testbed.PREFIX + host.name, "route", verb, "blackhole", f"{address}/32")


def hang_up() -> None:
    """End the lasting connections: those that were cut off take long to notice that they are healed."""
    for path in testbed.SSH_SOCKETS.glob("*"):
        subprocess.run(["ssh", "-O", "exit", "-S", str(path), "testbed"], capture_output=True, check=False)


def was_hit(story: Story, event: Announced) -> bool:
    done = [line for line in story.scene.log("impact_command") if line["event"].lower() == event.event_id.lower()]
    return any("rc" in line for line in done)


def run_code(run: Run) -> int:
    """The exit code of a run that is over."""
    if not run.is_over or run.code is None:
        raise CaseFailed(f"run {run.number} is not over")
    return run.code


def nothing_lost(story: Story, problems: Sequence[str] = ()) -> Outcome:
    return lost_only(story, lambda one: False, "", problems)


def lost_only(story: Story, is_excused: Callable[[Request], bool], whose: str, problems: Sequence[str] = ()) -> Outcome:
    counted: Count = count(story)
    lost = [one for one in story.requests() if one.is_lost]
    inexcusable = [one for one in lost if not is_excused(one)]
    outcome = Outcome(story.name, counted, [*problems, *story.broken()])
    if inexcusable:
        first = inexcusable[0]
        outcome.problems.append(f"{len(inexcusable)} requests were lost, such as {first}")
    if whose:
        outcome.notes.append(f"{len(lost) - len(inexcusable)} of the lost were {whose}")
    return outcome
