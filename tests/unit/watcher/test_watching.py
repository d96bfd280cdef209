# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the watcher notices, and how it fares when things around it fail."""

import json
import os
from pathlib import Path

import pytest


def test_an_event_that_hits_this_vm_is_said_once_for_each_status(machine):
    event_id = machine.schedule(notice=900, lasts=300)
    machine.poll(3)
    machine.simulator.advance(901)
    machine.poll(3)
    machine.simulator.finish(event_id)
    machine.poll(8)
    assert [line.rsplit(" ", 1)[1] for line in machine.said(event_id)] == ["scheduled", "started", "gone"]


def test_an_event_of_another_vm_is_none_of_its_business(machine):
    machine.schedule("vm1")
    machine.poll(3)
    assert machine.lines == []
    assert machine.state["events"] == []


def test_an_event_is_gone_only_after_five_seconds_without_it(machine):
    event_id = machine.schedule()
    machine.poll()
    machine.simulator.cancel(event_id)
    machine.poll(5)
    assert not machine.said("is gone")
    machine.poll(2)
    assert machine.said("is gone")


def test_a_document_without_its_events_is_not_taken_for_gone(machine):
    machine.schedule()
    machine.poll()
    machine.simulator.inject("no_events", vms=["vm0"], endpoint="scheduledevents", count=4)
    machine.poll(12)
    assert not machine.said("is gone")


def test_what_is_known_survives_a_restart_of_the_watcher(machine):
    machine.schedule()
    machine.poll()
    machine.start()
    machine.poll(2)
    assert len(machine.said("is scheduled")) == 1


def test_an_event_that_vanished_while_the_watcher_was_down_is_still_said_to_be_gone(machine):
    event_id = machine.schedule()
    machine.poll()
    machine.simulator.cancel(event_id)
    machine.start()
    machine.poll(8)
    assert machine.said("is gone")


def test_one_look_by_a_timer_makes_sure_that_an_event_is_gone(machine):
    event_id = machine.schedule()
    machine.start("timer")
    assert machine.watcher.once()
    machine.simulator.cancel(event_id)
    machine.start("timer")
    assert machine.watcher.once()
    assert machine.said("is gone")


def test_the_public_state_and_the_metrics_tell_the_same(machine):
    machine.schedule(notice=900)
    machine.poll()
    assert [event["status"] for event in machine.state["events"]] == ["scheduled"]
    metrics = Path(machine.paths.metrics).read_text()
    assert 'azops_watcher_events{type="Reboot",status="scheduled"} 1' in metrics
    assert "azops_watcher_seconds_to_not_before" in metrics
    assert "azops_watcher_last_success_age_seconds" in metrics
    assert 'azops_watcher_info{version="' in metrics
    assert Path(machine.paths.public_state).stat().st_mode & 0o777 == 0o644


def test_a_service_that_is_down_is_said_once_and_counted_each_time(machine):
    machine.poll()
    machine.simulator.inject("503", vms=["vm0"], endpoint="scheduledevents", count=5)
    machine.poll(5)
    assert len(machine.said("metadata service")) == 1
    assert machine.state["errors"] >= 1
    machine.poll(12)
    assert len(machine.said("metadata service is fine again")) == 1
    assert machine.state["last_error"] is None


@pytest.mark.parametrize("fault", ["empty", "cut", "not_json", "wrong_types", "huge", "reset", "404", "429"])
def test_no_fault_of_the_service_ends_the_watcher(machine, fault):
    machine.poll()
    machine.simulator.inject(fault, vms=["vm0"], count=3)
    machine.poll(4)
    event_id = machine.schedule()
    machine.poll(2)
    assert machine.said(event_id)


def test_a_service_that_is_not_there_at_the_start_is_waited_for(machine):
    machine.simulator.inject("503", vms=["vm0"], endpoint="instance", count=3)
    machine.poll(4)
    event_id = machine.schedule()
    machine.poll()
    assert machine.said(event_id)


def test_a_disk_that_is_full_is_said_once_and_forgets_nothing(machine, monkeypatch):
    from azops_core._errors import JournalError
    from azops_watcher import watcher as program

    def full(directory, knowledge):
        raise JournalError("Cannot write: No space left on device.")

    event_id = machine.schedule()
    with monkeypatch.context() as broken:
        broken.setattr(program, "save", full)
        machine.poll(5)
    assert len(machine.said("No space left")) == 1
    assert machine.state["events"][0]["event_id"] == event_id
    machine.poll()
    assert machine.said("state is fine again")
    machine.start()
    machine.poll()
    assert len(machine.said("is scheduled")) == 1


def test_a_public_directory_that_cannot_be_written_does_not_end_the_watcher(machine, monkeypatch):
    from azops_watcher import watcher as program

    def full(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr(program, "publish", full)
    machine.schedule()
    machine.poll(3)
    assert machine.said("is scheduled")
    assert len(machine.said("public state")) == 1


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_a_clock_that_jumps_changes_nothing(machine, jump):
    machine.schedule()
    machine.poll()
    machine.wall += jump
    machine.poll(3)
    assert len(machine.said("is scheduled")) == 1
    assert not machine.said("is gone")


def test_a_damaged_state_is_put_aside_and_the_events_are_news_again(machine):
    machine.schedule()
    machine.poll()
    Path(machine.paths.state, "state.json").write_text("{")
    machine.start()
    machine.poll()
    assert len(machine.said("is scheduled")) == 2
    assert Path(machine.paths.state, "state.json.damaged").exists()


def test_an_unchanged_document_writes_nothing_to_the_disk(machine):
    machine.schedule()
    machine.poll(2)
    before = os.stat(os.path.join(machine.paths.state, "state.json")).st_mtime_ns
    machine.poll(5)
    assert os.stat(os.path.join(machine.paths.state, "state.json")).st_mtime_ns == before


def test_the_state_holds_what_the_service_said_as_data_only(machine):
    machine.schedule(description='"}\n$(touch /tmp/pwned) {{ lookup("pipe", "id") }}')
    machine.poll()
    assert json.loads(Path(machine.paths.public_state).read_text())["events"][0]["description"].startswith('"}')


def test_a_timers_polls_add_up_over_its_processes(machine):
    machine.start("timer")
    machine.watcher.once()
    success = machine.state["last_success"]
    machine.simulator.inject("503", vms=["vm0"])
    for _number in range(2):
        machine.start("timer")
        assert not machine.watcher.once()
    assert machine.state["errors"] == 2
    assert machine.state["last_success"] == success
    assert len(machine.said("metadata service")) == 1
    machine.simulator.clear_faults()
    machine.start("timer")
    assert machine.watcher.once()
    assert machine.said("metadata service is fine again")


def test_a_service_that_hangs_is_given_up_and_waited_out(machine):
    machine.poll()
    client = machine.watcher._client
    patience, client._read_timeout = client._read_timeout, 0.1
    client.close()
    machine.simulator.inject("hang", vms=["vm0"], count=2)
    machine.poll(2)
    client._read_timeout = patience
    machine.poll()
    assert len(machine.said("metadata service: ")) == 1
    event_id = machine.schedule()
    machine.poll(2)
    assert machine.said(event_id)
