# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""scheduled_events_wait, the part on the VM: one slice of waiting."""

import pytest


@pytest.mark.parametrize("interval", [-1, 0, 6])
def test_an_interval_with_which_an_event_is_never_seen_gone_is_refused(fleet, interval):
    result = fleet.call("scheduled_events_wait", until="gone", interval=interval)
    assert "interval must be from 1 to 5 seconds" in result["msg"]


def test_an_event_that_is_there_has_appeared(fleet):
    event_id = fleet.schedule("vm0")
    result = fleet.call("scheduled_events_wait", until="appear", slice_seconds=0)
    assert result["met"]
    assert [event["event_id"] for event in result["events"]] == [event_id]


def test_a_slice_ends_without_the_event(fleet):
    result = fleet.call("scheduled_events_wait", until="appear", slice_seconds=0)
    assert (result["met"], result["reads"], result["last_error"]) == (False, 1, None)


def test_an_event_of_another_vm_is_not_mine(fleet):
    fleet.schedule("vm1")
    assert not fleet.call("scheduled_events_wait", until="appear", only_mine=True, slice_seconds=0)["met"]


def test_check_mode_reads_once_and_does_not_wait(fleet):
    event_id = fleet.schedule("vm0")
    result = fleet.call("scheduled_events_wait", check_mode=True, until="gone", event_ids=[event_id])
    assert (result["met"], result["reads"]) == (False, 1)


def test_a_started_event_has_started(fleet):
    event_id = fleet.schedule("vm0", notice=900)
    assert not fleet.call("scheduled_events_wait", until="started", event_ids=[event_id], slice_seconds=0)["met"]
    fleet.simulator.advance(901)
    assert fleet.call("scheduled_events_wait", until="started", event_ids=[event_id], slice_seconds=0)["met"]


def test_one_read_without_the_event_does_not_make_it_gone(fleet):
    result = fleet.call("scheduled_events_wait", until="gone", event_ids=["x"], slice_seconds=0)
    assert (result["met"], result["reads"]) == (False, 1)


def test_a_service_that_fails_is_waited_out_and_said(fleet):
    fleet.simulator.inject("503", vms=["vm0"])
    result = fleet.call("scheduled_events_wait", until="gone", event_ids=["x"], slice_seconds=0)
    assert (result["met"], result["reads"]) == (False, 0)
    assert "503" in result["last_error"]
