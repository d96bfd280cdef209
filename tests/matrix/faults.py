# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults. Each story announces events, lets something go wrong at a moment that it waits for, and says how every
run has to end: the exit code, and what the last message names. The checker then looks at the rules."""

from __future__ import annotations

import functools
from typing import Any

from cases import fault
from world import MULTI, ONE, STRANGER, THREE, TWELVE, CaseFailed, Run, World

# A deadline that a run meets on a busy machine, and that a case can wait for. Seconds.
SOON: dict[str, Any] = {"notice": 180}
SHORT = {"maintenance_drain_timeout": 35, "maintenance_margin": 20}


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise CaseFailed(f"expected that {what}")


def meet_the_deadline(world: World) -> dict[str, Any]:
    """With several domains a failure is followed through to NotBefore: rule 5. Otherwise Azure cancels: quicker."""
    if world.shape == THREE:
        world.options.update(SHORT)
        return dict(SOON)
    return {}


def cancel_if_quick(world: World) -> None:
    if world.shape != THREE:
        world.cancel_all()


# Nothing goes wrong


@fault("check mode, then a run")
def check_mode(world: World) -> None:
    world.announce(description="{{ lookup('pipe', 'touch /tmp/azops-matrix-was-run') }} $(false) `false`")
    world.roll("--check", "--diff").ends(0, world.events[0].event_id, world.first.name)
    written = list(world.directory.glob("journals/*/*"))
    expect(not written, f"nothing is written in check mode, not {written}")
    world.roll().ends(0)
    expect(all(world.is_approved(event) for event in world.events), "every event is approved")


# The drain


@fault("drain fails", is_slow=True, about_later_batches=True)
def drain_fails(world: World) -> None:
    world.order(world.first, "drain", "fail")
    world.announce(**meet_the_deadline(world))
    run = world.roll()
    world.until_did(world.first, "drain", "failed", run)
    world.until_refused(run)
    cancel_if_quick(world)
    run.ends(2, world.first.name, world.events[0].event_id, "told to fail")
    expect(not any(world.is_approved(event) for event in world.events), "nothing is approved")


@fault("drain hangs past its budget", is_slow=True)
def drain_hangs(world: World) -> None:
    world.order(world.first, "drain", "hang")
    world.options["maintenance_drain_timeout"] = 6
    world.announce(**meet_the_deadline(world))
    run = world.roll()
    world.until_refused(run)
    cancel_if_quick(world)
    run.ends(2, world.first.name, world.events[0].event_id, "not over within")
    expect(not any(world.is_approved(event) for event in world.events), "nothing is approved")


@fault("back in service before the approval")
def drain_is_lost(world: World) -> None:
    world.announce()
    world.pause_at("before_approve")
    run = world.roll()
    world.until_paused("before_approve", run)
    (world.directory / "out" / world.first.name).unlink()
    world.go_on("before_approve")
    run.ends(0)
    drains = [line for line in world.record() if line["host"] == world.first.name and line["verb"] == "drain"]
    expect(len(drains) == 4, "it is drained twice")


# The host


@fault("unreachable before the drain", is_slow=True)
def unreachable_before_drain(world: World) -> None:
    world.announce(**meet_the_deadline(world))
    world.pause_at("before_batch")
    run = world.roll()
    world.until_paused("before_batch", run)
    world.take_down(world.first)
    world.may_be_hit_undrained.add(world.first.name)
    world.go_on("before_batch")
    world.until_refused(run)
    world.bring_up(world.first)
    cancel_if_quick(world)
    run.ends(2, world.first.name, "answer|reach")
    expect(not any(world.is_approved(event) for event in world.events), "nothing is approved")


@fault("unreachable in the user's drain tasks", is_slow=True)
def unreachable_in_tasks(world: World) -> None:
    world.options["drain_backends"] = ["tasks"]
    world.options["drain_tasks"] = {
        "drain": str(world.directory / "own_drain.yml"),
        "restore": str(world.directory / "own_restore.yml"),
    }
    world.order(world.first, "drain", "wait")
    world.announce(**meet_the_deadline(world))
    run = world.roll()
    world.until_did(world.first, "drain", "begins", run)
    world.take_down(world.first)
    world.let(world.first, "drain")
    world.until_did(world.first, "drain", "done", run)
    if world.shape == MULTI:
        world.until_refused(run)
        world.cancel_all()
    run.ends(4, world.first.name, world.events[0].event_id, "lost half way|does not answer any more")
    expect(not world.is_approved(world.events[0]), "the event is not approved")
    world.bring_up(world.first)
    world.roll().ends(0)


@fault("unreachable after the drain", is_slow=True)
def unreachable_after_drain(world: World) -> None:
    world.announce(**meet_the_deadline(world))
    world.pause_at("before_approve")
    run = world.roll()
    world.until_paused("before_approve", run)
    world.take_down(world.first)
    world.go_on("before_approve")
    world.until_refused(run)
    world.bring_up(world.first)
    cancel_if_quick(world)
    run.ends(2, world.first.name, "answer|reach")
    expect(not any(world.is_approved(event) for event in world.events), "nothing is approved")


@fault("unreachable after the approval")
def unreachable_after_approval(world: World) -> None:
    world.announce(lasts=4)
    world.pause_at("after_approve")
    run = world.roll()
    world.until_paused("after_approve", run)
    world.take_down(world.first)
    world.go_on("after_approve")
    world.until(lambda: "not reachable" in run.output, "the wait to miss the host", run)
    world.bring_up(world.first)
    run.ends(0)


@fault("unreachable for good", is_slow=True)
def unreachable_for_good(world: World) -> None:
    world.options.update(SHORT, maintenance_wait_timeout=10)
    world.announce(**SOON)
    world.pause_at("after_approve")
    run = world.roll()
    world.until_paused("after_approve", run)
    world.take_down(world.first)
    world.go_on("after_approve")
    run.ends(4, world.first.name, "does not answer")
    expect(all(not world.is_approved(event) for event in world.events[1:]), "no other event is approved")
    world.bring_up(world.first)
    world.roll().ends(0)


# The approval


@fault("leader cannot approve", is_slow=True)
def leader_cannot_approve(world: World) -> None:
    world.announce(**meet_the_deadline(world))
    world.azure("inject", kind="reset", vms=[world.first.vm], method="POST")
    run = world.roll()
    if world.shape == MULTI:
        run.ends(0, "could not approve it", "approved by web1")
        return
    world.until_refused(run)
    cancel_if_quick(world)
    run.ends(2, world.first.name, world.events[0].event_id)


@fault("approval refused", is_slow=True)
def approval_refused(world: World) -> None:
    world.announce(**meet_the_deadline(world))
    world.azure("inject", kind="500", method="POST")
    run = world.roll()
    world.until_refused(run)
    cancel_if_quick(world)
    run.ends(2, world.first.name, world.events[0].event_id)


# Azure


@fault("cancelled while draining", about_later_batches=True)
def cancelled_while_draining(world: World) -> None:
    world.order(world.first, "drain", "wait")
    world.announce()
    run = world.roll()
    world.until_did(world.first, "drain", "begins", run)
    world.cancel(world.events[0])
    world.let(world.first, "drain")
    run.ends(0, "cancelled")
    expect(not world.is_approved(world.events[0]), "what is gone is not approved")


@fault("cancelled after the approval")
def cancelled_after_approval(world: World) -> None:
    world.announce(tenant_delay=300)
    run = world.roll()
    for event in world.events:
        world.until_approved(event, run)
        world.cancel(event)
    run.ends(0)


@fault("starts early")
def starts_early(world: World) -> None:
    world.order(world.first, "drain", "wait")
    world.announce(first={"predicted": True, "notice": 900, "lasts": 3600})
    early = world.events[0]
    run = world.roll()
    world.until_did(world.first, "drain", "begins", run)
    world.azure("fail_hardware", event=early.event_id)
    world.let(world.first, "drain")
    world.until(lambda: "started already" in run.output, "the gate to see it", run)
    world.until_polled(world.first, run)
    world.finish(early)
    run.ends(0)
    expect(not world.is_approved(world.events[0]), "what has started is not approved")


@fault("late run")
def late_run(world: World) -> None:
    world.options.update(maintenance_drain_timeout=60, maintenance_margin=30)
    world.announce(notice=60)
    world.roll().ends(0, "forced")


@fault("started before the run")
def started_before_the_run(world: World) -> None:
    world.may_not_be_touched = {host.name for host in world.hosts}
    world.may_be_hit_undrained = {host.name for host in world.hosts}
    world.announce(notice=0, lasts=3600)
    world.until(lambda: all(world.state(event) == "Started" for event in world.events), "the events to start")
    world.roll().ends(0, "started already")
    for event in world.events:
        world.finish(event)


@fault("NotBefore has passed")
def time_has_passed(world: World) -> None:
    world.may_not_be_touched = {host.name for host in world.hosts}
    world.may_be_hit_undrained = {host.name for host in world.hosts}
    world.announce(notice=0, late=300)
    world.roll().ends(2, world.first.name, world.events[0].event_id, "time has passed")
    world.cancel_all()


# The metadata service

TRANSIENT = ("404", "410", "429", "500", "503", "empty", "cut", "reset", "not_json", "wrong_types", "delay", "huge")


def stumble_once(kind: str, world: World) -> None:
    """The first requests of every VM fail, and again those around the approval: the client asks again."""
    world.announce()
    seconds = {"seconds": 3} if kind == "delay" else {}
    world.azure("inject", kind=kind, count=1, **seconds)
    world.azure("inject", kind=kind, count=1, after=3, **seconds)
    world.azure("inject", kind=kind, count=1, method="POST", **seconds)
    world.most_approval_requests = 2
    world.roll().ends(0)
    expect(all(world.is_approved(event) for event in world.events), "every event is approved in the end")


def stay_away(kind: str, world: World) -> None:
    """From just before the approval on, one VM's metadata service cannot be used: no answer means no approval."""
    world.announce(**meet_the_deadline(world))
    world.pause_at("before_approve")
    run = world.roll()
    world.until_paused("before_approve", run)
    world.azure("inject", kind=kind, vms=[world.first.vm], **({"seconds": 30} if kind == "delay" else {}))
    world.go_on("before_approve")
    world.until_refused(run)
    world.azure("clear_faults")
    cancel_if_quick(world)
    run.ends(2, world.first.name, world.events[0].event_id)
    expect(not any(world.is_approved(event) for event in world.events), "nothing is approved")


for _kind in TRANSIENT:
    fault(f"metadata service, once: {_kind}", (ONE, MULTI), in_short_form=False)(functools.partial(stumble_once, _kind))
    fault(f"metadata service, for long: {_kind}", (ONE, MULTI), in_short_form=False)(
        functools.partial(stay_away, _kind)
    )


@fault("metadata service, each fault once", (MULTI,))
def stumble_in_every_way(world: World) -> None:
    world.announce()
    for number, kind in enumerate(TRANSIENT):
        world.azure("inject", kind=kind, count=1, after=number, **({"seconds": 2} if kind == "delay" else {}))
    world.azure("inject", kind="503", count=1, method="POST")
    world.most_approval_requests = 2
    world.roll().ends(0)
    expect(all(world.is_approved(event) for event in world.events), "every event is approved in the end")


@fault("metadata service, each fault for long", (TWELVE,), is_slow=True)
def stay_away_in_every_way(world: World) -> None:
    world.announce()
    world.options["drain_backends"] = []
    world.pause_at("before_approve")
    run = world.roll()
    world.until_paused("before_approve", run)
    for kind, host in zip(TRANSIENT, world.hosts, strict=False):
        world.azure("inject", kind=kind, vms=[host.vm], **({"seconds": 30} if kind == "delay" else {}))
    world.go_on("before_approve")
    world.until_refused(run)
    expect(not any(world.is_approved(event) for event in world.events), "nothing is approved")
    world.azure("clear_faults")
    world.cancel_all()
    run.ends(2, *(host.name for host in world.hit))


# The journal


@fault("journal damaged after the drain", (ONE, MULTI))
def journal_damaged(world: World) -> None:
    world.announce()
    world.pause_at("before_approve")
    run = world.roll()
    world.until_paused("before_approve", run)
    (damaged,) = world.journal_dir(world.first).glob("*.json")
    damaged.write_text('{"format": 1, "steps": ', encoding="utf-8")
    world.journal_was_damaged.add(world.first.name)
    world.go_on("before_approve")
    world.until_refused(run)
    world.cancel_all()
    run.ends(2, world.first.name, world.events[0].event_id, "damaged", "by hand")
    # What the message says: bring it back by hand, then move the file away.
    damaged.unlink()
    (world.directory / "out" / world.first.name).unlink()
    world.roll().ends(0)


@fault("journal of somebody else's event damaged", (ONE,), in_short_form=False)
def old_journal_damaged(world: World) -> None:
    world.announce()
    world.journal_dir(world.first).mkdir(mode=0o700)
    (world.journal_dir(world.first) / ("0" * 40 + ".json")).write_text("nonsense", encoding="utf-8")
    world.roll().ends(0, "damaged|cannot be read|not JSON")


# Two controllers


@fault("two controllers at once", (ONE, MULTI))
def two_controllers(world: World) -> None:
    world.announce()
    one, other = world.roll(), world.roll()
    one.ends(0)
    other.ends(0)
    expect(all(world.is_approved(event) for event in world.events), "every event is approved")


@fault("second controller while the first holds the lease", (ONE,), in_short_form=False)
def second_controller(world: World) -> None:
    world.options["maintenance_margin"] = 700
    world.announce()
    world.pause_at("before_approve")
    first = world.roll()
    world.until_paused("before_approve", first)
    world.options.pop("maintenance_hooks")
    world.options["maintenance_drain_timeout"] = 190
    world.roll().ends(2, world.first.name, "another run works on", "maintenance_takeover")
    world.go_on("before_approve")
    first.ends(0)


# The controller is killed, and run again


def run_again(world: World, killed: Run) -> None:
    killed.kill()
    world.roll().ends(0)


@fault("killed while scanning", in_short_form=False)
def killed_at_scan(world: World) -> None:
    world.announce()
    run = world.roll()
    world.until(lambda: bool(world.azure.log("request")), "the first request", run)
    run_again(world, run)


@fault("killed while draining", in_short_form=False)
def killed_at_drain(world: World) -> None:
    world.announce()
    world.order(world.first, "drain", "wait")
    run = world.roll()
    world.until_did(world.first, "drain", "begins", run)
    run.kill()
    world.let(world.first, "drain")
    run_again(world, run)


@fault("killed when drained", in_short_form=False)
def killed_when_drained(world: World) -> None:
    world.announce()
    world.pause_at("before_approve")
    run = world.roll()
    world.until_paused("before_approve", run)
    world.go_on("before_approve")
    run_again(world, run)


@fault("killed when approved", in_short_form=False)
def killed_when_approved(world: World) -> None:
    world.announce()
    run = world.roll()
    world.until_approved(world.events[0], run)
    run_again(world, run)


@fault("killed while waiting", in_short_form=False)
def killed_while_waiting(world: World) -> None:
    world.announce(first={"lasts": 3600})
    run = world.roll()
    until_waiting(world, run)
    run.kill()
    world.finish(world.events[0])
    run_again(world, run)


@fault("killed while restoring", in_short_form=False)
def killed_while_restoring(world: World) -> None:
    world.announce()
    world.order(world.first, "restore", "wait")
    run = world.roll()
    world.until_did(world.first, "restore", "begins", run)
    run.kill()
    world.let(world.first, "restore")
    run_again(world, run)


@fault("killed in every phase", (ONE, MULTI), is_slow=True)
def killed_in_every_phase(world: World) -> None:
    world.announce(lasts=3600)
    run = world.roll()
    world.until(lambda: bool(world.azure.log("request")), "the first request", run)
    run.kill()

    world.order(world.first, "drain", "wait")
    run = world.roll()
    world.until_did(world.first, "drain", "begins", run)
    run.kill()
    world.let(world.first, "drain")

    world.pause_at("before_approve")
    run = world.roll()
    world.until_paused("before_approve", run)
    run.kill()
    world.go_on("before_approve")
    world.options.pop("maintenance_hooks")

    run = world.roll()
    world.until_approved(world.events[0], run)
    run.kill()

    run = world.roll()
    until_waiting(world, run)
    run.kill()
    world.finish(world.events[0])

    world.order(world.first, "restore", "wait")
    run = world.roll()
    world.until_did(world.first, "restore", "begins", run)
    run.kill()
    world.let(world.first, "restore")
    world.roll().ends(0)


def until_waiting(world: World, run: Run) -> None:
    """Until the run polls for the end of the first event."""
    world.until(lambda: world.state(world.events[0]) == "Started", "the event to start", run)
    world.until_polled(world.first, run)


# What else may be


@fault("event appears during the run", (ONE, MULTI))
def event_appears(world: World) -> None:
    world.announce()
    run = world.roll()
    world.until_approved(world.events[0], run)
    late = world.schedule([world.hosts[-1]])
    run.ends(0)
    expect(world.is_approved(late), "the event that came later is approved too")


@fault("a VM that is not in the inventory", (ONE, MULTI), is_slow=True)
def stranger(world: World) -> None:
    world.options.update(SHORT)
    world.schedule(world.hit, strangers=[STRANGER], notice=90)
    world.roll().ends(0, "not reached: " + STRANGER)
    expect(not world.is_approved(world.events[0]), "it is not approved")
    expect(world.did(world.first, "restore"), "its known VMs are drained and restored")


@fault("a VM that is not in the inventory, approved all the same", (ONE,), in_short_form=False)
def approved_stranger(world: World) -> None:
    world.schedule(world.hit, strangers=[STRANGER])
    world.approves_unmanaged = True
    world.roll(maintenance_approve_unmanaged=True).ends(0)
    expect(world.is_approved(world.events[0]), "it is approved")


@fault("drained by hand before")
def drained_by_hand(world: World) -> None:
    flag = world.directory / "flag"
    flag.write_text("gone fishing", encoding="utf-8")
    world.options["drain_backends"] = ["command", "file"]
    for host in world.hosts:
        world.host_options[host.name]["drain_file_path"] = str(world.directory / f"flag-{host.name}")
    world.host_options[world.first.name]["drain_file_path"] = str(flag)
    world.announce()
    world.roll().ends(0)
    expect(flag.exists() and flag.read_text(encoding="utf-8") == "gone fishing", "the flag set by hand is still there")
    others = list(world.directory.glob("flag-*"))
    expect(not others, f"our own flags are removed, not {others}")


@fault("held VM")
def held(world: World) -> None:
    (world.directory / f"hold-{world.first.name}").write_text("", encoding="utf-8")
    world.may_not_be_touched.add(world.first.name)
    world.announce()
    run = world.roll()
    if world.shape == MULTI:
        # Its neighbour is drained in time; nobody waits 12 minutes for that here.
        world.until(lambda: "held by" in run.output, "the plan", run)
        world.until(lambda: "until it is time" in run.output, "the run to wait until it is time", run)
        world.cancel_all()
    run.ends(0, world.first.name + " is held by")
    expect(not world.is_approved(world.events[0]), "it is not approved")
    world.cancel_all()


@fault("VM does not come back from Terminate")
def terminated(world: World) -> None:
    world.announce(first={"type": "Terminate"})
    world.lost = {host.name for host in world.events[0].hosts}
    world.pause_at("after_approve")
    run = world.roll()
    world.until_paused("after_approve", run)
    for host in world.events[0].hosts:
        world.take_down(host)
    world.go_on("after_approve")
    run.ends(0)


@fault("watcher takes care of it")
def watched(world: World) -> None:
    world.announce()
    for host in world.events[0].hosts:
        world.write_journal(host, world.events[0], "azops-watcher")
        world.may_stay_open.add(host.name)
        world.may_not_be_touched.add(host.name)
    world.roll().ends(0, "the watcher of")
    expect(not world.is_approved(world.events[0]), "it is not approved by us")
    world.cancel_all()


@fault("restore fails", is_slow=True)
def restore_fails(world: World) -> None:
    world.order(world.first, "restore", "fail")
    world.announce(**meet_the_deadline(world))
    world.roll().ends(2, world.first.name, world.events[0].event_id, "was not restored", "told to fail")
    expect(all(not world.is_approved(event) for event in world.events[1:]), "no other event is approved")
    world.let(world.first, "restore")
    world.roll().ends(0)


@fault("health check fails", is_slow=True)
def health_fails(world: World) -> None:
    world.options.update(drain_health_tasks=str(world.directory / "own_health.yml"), drain_health_timeout=5)
    world.order(world.first, "health", "fail")
    world.announce(**meet_the_deadline(world))
    world.roll().ends(2, world.first.name, world.events[0].event_id, "was not restored")
    expect(all(not world.is_approved(event) for event in world.events[1:]), "no other event is approved")
    world.let(world.first, "health")
    world.roll().ends(0)


@fault("no impact: approved without a drain", in_short_form=False)
def no_impact(world: World) -> None:
    world.announce(duration=0)
    world.needs_no_drain = {event.event_id for event in world.events}
    world.may_not_be_touched = {host.name for host in world.hosts}
    world.roll().ends(0)
    expect(all(world.is_approved(event) for event in world.events), "every event is approved")


@fault("undone at once by the playbook restore", (ONE, MULTI), in_short_form=False)
def undo(world: World) -> None:
    world.announce()
    world.pause_at("before_approve")
    run = world.roll()
    world.until_paused("before_approve", run)
    run.kill()
    world.go_on("before_approve")
    world.restored_by_command = True
    world.roll("--check", playbook="restore").ends(0, "Would put back " + world.first.name)
    world.roll(playbook="restore").ends(0, "Putting back " + world.first.name)
    world.cancel_all()
