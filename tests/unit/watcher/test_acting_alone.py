# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Acting alone: drain by hooks, approve only then, restore afterwards, and never against a controller."""

import pytest
from azops_core._journal import Journal, Subject
from azops_core._lease import Holder, LeaseBox


@pytest.fixture
def alone(machine):
    machine.hooks_for_all_phases()
    machine.configure(act_alone=True)
    return machine


def entry(machine, event_id):
    return Journal(machine.paths.journal).find(event_id, "vm0")


def test_by_default_nothing_is_ever_approved(machine):
    machine.hooks_for_all_phases()
    machine.schedule()
    machine.poll()
    machine.run_hooks()
    machine.poll(3)
    assert machine.approvals() == []


def test_an_event_goes_from_drain_over_approval_to_restore(alone):
    event_id = alone.schedule(notice=900, lasts=300)
    alone.poll(3)
    assert alone.approvals() == []
    alone.run_hooks()
    assert entry(alone, event_id).phase == "drained"
    alone.poll()
    assert [approval["event"] for approval in alone.approvals()] == [event_id]
    alone.run_hooks()
    alone.poll(2)
    alone.simulator.finish(event_id)
    alone.start()
    alone.poll(8)
    alone.run_hooks()
    closed = entry(alone, event_id)
    assert alone.ran("gone")
    assert [step.phase for step in closed.steps] == ["draining", "drained", "approved", "restoring", "closed"]
    assert closed.open_changes == ()
    assert LeaseBox(alone.paths.journal).current() is None


def test_a_drain_that_fails_is_never_approved(alone):
    alone.hook("scheduled", body="exit 1")
    event_id = alone.schedule()
    alone.poll()
    alone.run_hooks()
    alone.poll(5)
    assert alone.approvals() == []
    assert entry(alone, event_id).phase == "drain_failed"


def test_a_cancelled_event_is_restored(alone):
    event_id = alone.schedule()
    alone.poll()
    alone.run_hooks()
    alone.simulator.cancel(event_id)
    alone.poll(9)
    alone.run_hooks()
    assert alone.ran("gone")
    assert not entry(alone, event_id).is_open


def test_a_restore_that_fails_is_tried_again_until_it_works(alone):
    alone.hook("gone", body="test -e {root}/mended && cat > {root}/gone.json")
    event_id = alone.schedule()
    alone.poll()
    alone.run_hooks()
    alone.simulator.cancel(event_id)
    alone.poll(9)
    alone.run_hooks()
    assert entry(alone, event_id).phase == "restore_failed"
    (alone.root / "mended").write_text("")
    alone.poll(30)
    alone.run_hooks()
    assert not entry(alone, event_id).is_open
    assert alone.ran("gone")


def test_an_event_that_also_hits_others_is_drained_but_not_approved_unless_the_user_says_so(alone):
    alone.schedule("vm0", "vm3")
    alone.poll()
    alone.run_hooks()
    alone.poll(3)
    assert alone.ran("scheduled")
    assert alone.approvals() == []
    alone.configure(act_alone=True, approve_shared_events=True)
    alone.poll()
    assert len(alone.approvals()) == 1


def test_what_a_controller_has_in_the_journal_is_left_alone(alone):
    event_id = alone.schedule()
    Journal(alone.paths.journal).begin(Subject(event_id, "vm0"), "rolling")
    alone.poll()
    alone.run_hooks()
    alone.poll(3)
    assert alone.ran("scheduled") is None
    assert alone.approvals() == []
    assert alone.said("left_alone")


def test_while_a_controller_has_the_lease_the_watcher_does_nothing(alone):
    LeaseBox(alone.paths.journal).acquire("fleet", Holder("run-1", "ops1", 7), 600)
    alone.schedule()
    alone.poll()
    alone.run_hooks()
    alone.poll(3)
    assert alone.ran("scheduled") is None
    assert alone.approvals() == []


def test_a_controller_cannot_take_the_lease_while_the_watcher_acts(alone):
    alone.schedule()
    alone.poll()
    alone.run_hooks()
    lease = LeaseBox(alone.paths.journal).acquire("fleet", Holder("run-1", "ops1", 7), 600)
    assert lease.holder.run_id.startswith("azops-watcher")


def test_an_event_that_needs_no_drain_is_approved_without_hooks(alone):
    event_id = alone.schedule(kind="Freeze", duration=5)
    alone.poll(2)
    alone.run_hooks()
    assert alone.ran("scheduled") is None
    assert alone.ran("started") is None
    assert [approval["event"] for approval in alone.approvals()] == [event_id]


@pytest.mark.parametrize("action", ["ignore", "observe"])
def test_policy_can_keep_the_watcher_out_of_it(alone, action):
    alone.configure(act_alone=True, policy=[{"action": action}])
    alone.schedule()
    alone.poll(3)
    alone.run_hooks()
    assert alone.ran("scheduled") is None
    assert alone.approvals() == []


def test_an_earlier_event_of_another_vm_comes_first(alone):
    first = alone.schedule("vm1", notice=600)
    alone.schedule("vm0", notice=900)
    alone.poll()
    alone.run_hooks()
    assert alone.ran("scheduled") is None
    alone.simulator.cancel(first)
    alone.poll()
    alone.run_hooks()
    assert alone.ran("scheduled")


def test_a_vm_whose_deadline_is_near_is_drained_out_of_turn_but_not_approved(alone):
    alone.configure(act_alone=True, hook_timeout=3, margin=3600)
    alone.schedule("vm1", notice=600)
    alone.schedule("vm0", notice=900)
    alone.poll()
    alone.run_hooks()
    alone.poll(2)
    assert alone.ran("scheduled")
    assert alone.approvals() == []


def test_an_approval_that_the_service_does_not_take_is_tried_again(alone):
    event_id = alone.schedule()
    alone.poll()
    alone.run_hooks()
    alone.simulator.inject("503", vms=["vm0"], method="POST", count=2)
    alone.poll(5)
    assert [approval["event"] for approval in alone.approvals()] == [event_id]
    assert len(alone.said("approval: ")) == 1


def test_what_was_never_drained_here_is_not_restored_either(alone):
    alone.configure(act_alone=True, policy=[{"action": "ignore"}])
    event_id = alone.schedule()
    alone.poll()
    alone.run_hooks()
    alone.simulator.cancel(event_id)
    alone.poll(9)
    alone.run_hooks()
    assert alone.ran("gone") is None


def test_a_lease_that_has_expired_is_taken_and_the_vm_drained_after_all(alone):
    leases = LeaseBox(alone.paths.journal)
    leases.acquire("fleet", Holder("run-1", "ops1", 7), 600)
    event_id = alone.schedule()
    alone.poll()
    alone.run_hooks()
    alone.poll()
    leases.release("run-1")
    alone.poll(12)
    alone.run_hooks()
    assert alone.ran("scheduled")
    assert entry(alone, event_id).phase == "drained"


def test_two_events_of_one_vm_are_both_drained_for_and_restored_when_both_are_gone(alone):
    alone.hook("gone", body="echo x >> {root}/restored")
    first = alone.schedule(notice=600, lasts=300)
    second = alone.schedule(notice=90000, lasts=300)
    alone.configure(act_alone=True, margin=3600)
    alone.poll()
    alone.run_hooks()
    alone.simulator.advance(86900)
    alone.wait(86900)
    alone.poll(2)
    alone.run_hooks()
    alone.poll(30)
    alone.run_hooks()
    assert [entry(alone, event_id).is_open for event_id in (first, second)] == [True, True]
    assert not (alone.root / "restored").exists()
    alone.simulator.finish(second)
    for _number in range(6):
        alone.poll(9)
        alone.run_hooks()
    assert [entry(alone, event_id).is_open for event_id in (first, second)] == [False, False]
    assert (alone.root / "restored").exists()
    assert LeaseBox(alone.paths.journal).current() is None


def test_without_a_hook_that_drains_nothing_is_approved(machine):
    machine.configure(act_alone=True)
    event_id = machine.schedule()
    machine.poll()
    machine.run_hooks()
    machine.poll(3)
    assert machine.approvals() == []
    assert entry(machine, event_id) is None
    assert machine.said("there are no hooks")
