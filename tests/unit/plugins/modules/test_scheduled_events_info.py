# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""scheduled_events_info: what Azure has announced, and what it means to the VM that was asked."""

import pytest


def test_it_tells_who_the_vm_is(fleet):
    vm = fleet.call("scheduled_events_info", on="vm4")["vm"]
    assert vm["name"] == "vm4"
    assert vm["update_domain"] == "1"
    assert vm["scale_set_id"] is None


def test_it_never_reports_a_change(fleet):
    fleet.schedule("vm0")
    assert not fleet.call("scheduled_events_info").get("changed")


def test_a_vm_that_is_hit_first_leads(fleet):
    fleet.schedule("vm3", "vm0")
    leader, follower, witness = (
        fleet.call("scheduled_events_info", on=vm)["events"][0] for vm in ("vm3", "vm0", "vm1")
    )
    assert (leader["hits_me"], leader["is_leader"], leader["rank"]) == (True, True, 0)
    assert (follower["hits_me"], follower["is_leader"], follower["rank"]) == (True, False, 1)
    assert (witness["hits_me"], witness["is_leader"], witness["rank"]) == (False, False, None)
    assert {event["leader"] for event in (leader, follower, witness)} == {"vm3"}


def test_times_come_in_utc_and_the_seconds_left_fit_them(fleet):
    fleet.schedule("vm0", notice=900)
    event = fleet.call("scheduled_events_info")["events"][0]
    assert event["not_before"].endswith("Z")
    assert isinstance(event["seconds_left"], int)


def test_a_started_event_has_no_deadline(fleet):
    fleet.schedule("vm0", notice=900)
    fleet.simulator.advance(901)
    event = fleet.call("scheduled_events_info")["events"][0]
    assert (event["event_status"], event["not_before"], event["seconds_left"]) == ("Started", None, None)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"Reboot", "Freeze"}),
        ({"types": ["reboot"]}, {"Reboot"}),
        ({"sources": ["User"]}, {"Freeze"}),
        ({"statuses": ["Started"]}, set()),
        ({"resources": ["VM1"]}, {"Freeze"}),
        ({"only_mine": True}, {"Reboot"}),
        ({"only_mine": True, "types": ["Freeze"]}, set()),
    ],
)
def test_events_are_selected(fleet, options, expected):
    fleet.schedule("vm0")
    fleet.schedule("vm1", event_type="Freeze", source="User")
    events = fleet.call("scheduled_events_info", **options)["events"]
    assert {event["event_type"] for event in events} == expected


def test_the_endpoint_is_said_not_to_be_azures(fleet):
    result = fleet.call("scheduled_events_info")
    assert result["endpoint"] == fleet.simulator.url_for("vm0")
    assert result["endpoint_is_azure"] is False


def test_the_endpoint_can_come_from_the_environment(fleet, monkeypatch):
    monkeypatch.setenv("AZOPS_MAINTENANCE_ENDPOINT", fleet.simulator.url_for("vm5"))
    assert fleet.call("scheduled_events_info", endpoint=None)["vm"]["name"] == "vm5"


def test_no_metadata_service_is_reported_as_not_azure(fleet):
    result = fleet.call("scheduled_events_info", endpoint="http://127.0.0.1:9")
    assert result["failed"]
    assert result["error_kind"] == "not_azure"
    assert "does not look like an Azure VM" in result["msg"]


def test_a_service_that_keeps_failing_is_reported_with_its_status(fleet):
    fleet.simulator.inject("503", vms=["vm0"])
    result = fleet.call("scheduled_events_info", retry_timeout=0)
    assert (result["error_kind"], result["http_status"]) == ("service", 503)


def test_a_journal_that_is_not_there_is_empty(fleet):
    result = fleet.call("scheduled_events_info")
    assert result["journal"] == {"entries": [], "damaged": []}
    assert result["journal_error"] is None
    assert not fleet.journal_dir.exists()


def test_a_journal_that_cannot_be_trusted_is_null_with_a_reason(fleet):
    fleet.journal_dir.mkdir()
    fleet.journal_dir.chmod(0o777)
    result = fleet.call("scheduled_events_info")
    assert result["journal"] is None
    assert "cannot be trusted" in result["journal_error"]


def test_the_journal_comes_with_the_scan(fleet):
    event_id = fleet.schedule("vm0")
    fleet.call("maintenance_journal", action="begin", event_id=event_id, vm="vm0")
    entries = fleet.call("scheduled_events_info")["journal"]["entries"]
    assert [(entry["event_id"], entry["phase"]) for entry in entries] == [(event_id, "draining")]


def test_a_hold_is_shown_with_its_reason(fleet):
    fleet.hold_file.write_text("moving\nthe database\n")
    assert fleet.call("scheduled_events_info")["held_by"].endswith("(moving the database)")


def test_what_cannot_be_understood_is_a_warning_and_hides_nothing(fleet):
    fleet.schedule("vm0")
    fleet.simulator.inject("odd", vms=["vm0"], endpoint="scheduledevents")
    result = fleet.call("scheduled_events_info")
    assert any(event["hits_me"] for event in result["events"])
