# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hooks: asked for by the watcher, run by the root unit, trusted as cron would trust them."""

import json
import os
import time
from pathlib import Path


def test_each_change_runs_its_hooks_with_the_event_on_standard_input(machine):
    machine.hooks_for_all_phases()
    event_id = machine.schedule(notice=900, lasts=300)
    machine.poll()
    assert machine.run_hooks() == 1
    assert (machine.ran("scheduled")["event_id"], machine.ran("scheduled")["phase"]) == (event_id, "scheduled")
    machine.simulator.advance(901)
    machine.poll()
    machine.run_hooks()
    assert machine.ran("started")["event_status"] == "Started"
    machine.simulator.finish(event_id)
    machine.poll(8)
    machine.run_hooks()
    assert machine.ran("gone")["event_id"] == event_id


def test_hooks_run_in_order_and_know_the_event_from_their_environment(machine):
    for name in ("20-second", "10-first"):
        machine.hook("scheduled", name, 'echo "$0 $AZOPS_EVENT_TYPE $AZOPS_PHASE $AZOPS_VM" >> {root}/order')
    machine.schedule()
    machine.poll()
    machine.run_hooks()
    lines = (machine.root / "order").read_text().splitlines()
    assert [os.path.basename(line.split()[0]) for line in lines] == ["10-first", "20-second"]
    assert all(line.endswith("Reboot scheduled vm0") for line in lines)


def result(machine, event_id, phase="scheduled"):
    from azops_watcher.hooks import answer

    return answer(machine.paths, event_id, phase)


def test_a_hook_that_fails_ends_a_drain_there(machine):
    machine.hook("scheduled", "10-fails", "exit 3")
    machine.hook("scheduled", "20-never")
    event_id = machine.schedule()
    machine.poll()
    machine.run_hooks()
    assert result(machine, event_id).outcome == "failed"
    assert "ended with status 3" in result(machine, event_id).reason
    assert machine.ran("scheduled") is None


def test_a_hook_that_hangs_is_ended_with_all_that_it_started(machine):
    machine.configure(hook_timeout=1)
    machine.hook("scheduled", body="sleep 600 & echo $! > {root}/child; sleep 600")
    event_id = machine.schedule()
    machine.poll()
    started = time.monotonic()
    machine.run_hooks()
    assert time.monotonic() - started < 30
    assert "was ended after" in result(machine, event_id).reason
    child = int((machine.root / "child").read_text())
    deadline = time.monotonic() + 30
    while is_running(child):
        assert time.monotonic() < deadline, "the hook's child {0} still runs".format(child)
        time.sleep(0.01)


def is_running(pid):
    try:
        return Path("/proc/{0}/cmdline".format(pid)).read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_hook_that_others_can_write_is_not_run(machine):
    machine.hook("scheduled", mode=0o777)
    event_id = machine.schedule()
    machine.poll()
    machine.run_hooks()
    assert machine.ran("scheduled") is None
    assert "can be written by others" in result(machine, event_id).reason


def test_a_hook_that_is_a_link_or_not_a_program_is_not_run(machine):
    target = machine.hook("started", "target")
    (machine.root / "etc/azops-watcher/hooks.d/scheduled.d/10-link").symlink_to(target)
    machine.hook("scheduled", "20-plain", mode=0o644)
    event_id = machine.schedule()
    machine.poll()
    machine.run_hooks()
    assert "is a link" in result(machine, event_id).reason
    assert "not a program" in result(machine, event_id).reason


def test_what_editors_and_packages_leave_behind_is_passed_over(machine):
    for name in ("10-hook~", "10-hook.dpkg-old", ".hidden"):
        machine.hook("scheduled", name, "exit 1")
    event_id = machine.schedule()
    machine.poll()
    machine.run_hooks()
    assert result(machine, event_id).outcome == "done"


def test_a_hook_runs_once_for_each_change(machine):
    machine.hook("scheduled", body="echo x >> {root}/count")
    machine.schedule()
    for _number in range(4):
        machine.poll()
        machine.run_hooks()
    assert (machine.root / "count").read_text() == "x\n"


def test_the_text_of_an_event_reaches_no_shell(machine):
    machine.hook("scheduled", body='printf %s "$AZOPS_EVENT_TYPE" > {root}/type; cat > {root}/scheduled.json')
    machine.schedule(description="$(touch {0}/pwned); `touch {0}/pwned`".format(machine.root))
    machine.poll()
    machine.run_hooks()
    assert not (machine.root / "pwned").exists()
    assert "$(touch" in machine.ran("scheduled")["description"]


def test_a_request_that_the_watcher_did_not_write_is_thrown_away(machine):
    requests = Path(machine.paths.requests)
    requests.mkdir()
    (requests / "a.json").write_text("{}")
    (requests / "b.json").write_text(json.dumps({"phase": "rm -rf", "event": {}}))
    (requests / "c.json").symlink_to("/etc/shadow")
    machine.hooks_for_all_phases()
    machine.run_hooks()
    assert list(requests.iterdir()) == []
    assert machine.ran("scheduled") is None


def test_a_held_vm_runs_no_hooks_until_it_is_let_go(machine):
    machine.hooks_for_all_phases()
    Path(machine.paths.hold).write_text("migration")
    machine.schedule()
    machine.poll(2)
    assert machine.run_hooks() == 0
    assert machine.state["held_by"]
    assert len(machine.said("held by")) == 1
    Path(machine.paths.hold).unlink()
    machine.poll()
    machine.run_hooks()
    assert machine.ran("scheduled")


def test_a_hold_that_comes_between_asking_and_running_is_respected_by_root(machine):
    machine.hooks_for_all_phases()
    machine.schedule()
    machine.poll()
    Path(machine.paths.hold).write_text("migration")
    machine.run_hooks()
    assert machine.ran("scheduled") is None
    Path(machine.paths.hold).unlink()
    machine.poll(30)
    machine.run_hooks()
    assert machine.ran("scheduled")


def test_a_hook_in_a_directory_that_others_can_write_is_not_run(machine):
    path = machine.hook("scheduled")
    path.parent.chmod(0o777)
    event_id = machine.schedule()
    machine.poll()
    machine.run_hooks()
    assert machine.ran("scheduled") is None
    assert "can be written by others" in result(machine, event_id).reason


def test_a_link_in_place_of_the_requests_leads_root_nowhere(machine):
    elsewhere = machine.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious.json").write_text("{}")
    Path(machine.paths.requests).symlink_to(elsewhere)
    machine.run_hooks()
    assert (elsewhere / "precious.json").exists()
    assert not Path(machine.paths.requests).exists()


def test_a_request_that_cannot_be_removed_waits_no_longer(machine):
    poison = Path(machine.paths.requests, "poison.json")
    poison.mkdir(parents=True)
    (poison / "inside").write_text("")
    machine.run_hooks()
    assert machine.run_hooks() == 0
    assert not poison.exists()


def test_a_request_with_text_that_cannot_be_written_is_thrown_away(machine):
    requests = Path(machine.paths.requests)
    requests.mkdir()
    event = {"event_id": "\ud800", "event_type": "Reboot", "resources": [], "not_before": None}
    (requests / "a.json").write_text(json.dumps({"phase": "scheduled", "event": event, "vm": "vm0", "act": True}))
    assert machine.run_hooks() == 1
    assert list(requests.iterdir()) == []
