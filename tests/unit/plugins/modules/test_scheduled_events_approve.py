# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""scheduled_events_approve: all or nothing, never by accident, and never in check mode."""

import pytest


def outcomes(result):
    return [each["outcome"] for each in result["results"]]


def test_an_approval_starts_the_event_and_is_a_change(fleet):
    event_id = fleet.schedule("vm0", "vm3")
    result = fleet.call("scheduled_events_approve", event_ids=[event_id])
    assert result["changed"]
    assert outcomes(result) == ["approved"]
    assert result["results"][0]["start_pending"] is False
    assert fleet.simulator.event(event_id)["status"] == "Started"


def test_the_id_may_be_in_the_other_case_and_is_echoed_as_it_came(fleet):
    event_id = fleet.schedule("vm0")
    result = fleet.call("scheduled_events_approve", event_ids=[event_id.swapcase()])
    assert outcomes(result) == ["approved"]
    assert [approval["event"] for approval in fleet.approvals()] == [event_id]


def test_other_tenants_may_hold_up_the_start(fleet):
    event_id = fleet.schedule("vm0", tenant_delay=60)
    result = fleet.call("scheduled_events_approve", event_ids=[event_id])
    assert (outcomes(result), result["results"][0]["start_pending"]) == (["approved"], True)


def test_a_second_approval_from_the_same_vm_changes_nothing_and_sends_nothing(fleet):
    event_id = fleet.schedule("vm0", tenant_delay=60)
    fleet.call("scheduled_events_approve", event_ids=[event_id])
    result = fleet.call("scheduled_events_approve", event_ids=[event_id])
    assert not result["changed"]
    assert outcomes(result) == ["already_approved"]
    assert len(fleet.approvals()) == 1


def test_a_started_event_needs_no_approval(fleet):
    event_id = fleet.schedule("vm0", notice=900)
    fleet.simulator.advance(901)
    result = fleet.call("scheduled_events_approve", event_ids=[event_id])
    assert not result["changed"]
    assert outcomes(result) == ["already_started"]
    assert not fleet.approvals()


def test_check_mode_says_what_it_would_do_and_sends_and_writes_nothing(fleet):
    event_id = fleet.schedule("vm0")
    result = fleet.call("scheduled_events_approve", check_mode=True, event_ids=[event_id])
    assert result["changed"]
    assert outcomes(result) == ["would_approve"]
    assert not fleet.approvals()
    assert not fleet.journal_dir.exists()
    assert fleet.simulator.event(event_id)["status"] == "Scheduled"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expect_resources": ["vm0"]}, "it hits vm0, vm3, not vm0 as expected"),
        ({"expect_resources": ["vm0", "vm3", "vm1"]}, "it hits vm0, vm3, not vm0, vm3, vm1 as expected"),
        ({"max_resources": 1}, "it hits 2 VMs, more than 1"),
    ],
)
@pytest.mark.parametrize("check_mode", [False, True])
def test_an_event_that_hits_other_vms_than_expected_is_refused(fleet, options, words, check_mode):
    event_id = fleet.schedule("vm0", "vm3")
    result = fleet.call("scheduled_events_approve", check_mode=check_mode, event_ids=[event_id], **options)
    assert result["failed"]
    assert result["error_kind"] == "refused"
    assert event_id in result["msg"]
    assert words in result["msg"]
    assert not fleet.approvals()


def test_the_expected_vms_may_come_in_any_order_and_case(fleet):
    event_id = fleet.schedule("vm0", "vm3")
    result = fleet.call("scheduled_events_approve", event_ids=[event_id], expect_resources=["VM3", "vm0"])
    assert outcomes(result) == ["approved"]


def test_a_vm_that_is_not_hit_is_refused_where_that_is_required(fleet):
    event_id = fleet.schedule("vm0")
    result = fleet.call("scheduled_events_approve", on="vm1", event_ids=[event_id], require_mine=True)
    assert "it does not hit vm1 but vm0" in result["msg"]
    assert not fleet.approvals()


def test_a_vm_that_does_not_lead_is_refused_where_that_is_required(fleet):
    event_id = fleet.schedule("vm0", "vm3")
    result = fleet.call("scheduled_events_approve", on="vm3", event_ids=[event_id], require_leader=True)
    assert "vm3 is not its leader, vm0 is" in result["msg"]
    assert not fleet.approvals()


def test_one_refused_event_holds_back_all_others(fleet):
    small, large = fleet.schedule("vm0"), fleet.schedule("vm1", "vm4")
    result = fleet.call("scheduled_events_approve", types=["Reboot"], max_resources=1)
    assert sorted(outcomes(result)) == ["refused", "would_approve"]
    assert not result["changed"]
    assert not fleet.approvals()
    assert {fleet.simulator.event(event_id)["status"] for event_id in (small, large)} == {"Scheduled"}


def test_a_held_vm_approves_nothing(fleet):
    event_id = fleet.schedule("vm0")
    fleet.hold_file.write_text("")
    result = fleet.call("scheduled_events_approve", event_ids=[event_id])
    assert "vm0 is held" in result["msg"]
    assert not fleet.approvals()


def test_events_can_be_approved_by_selection(fleet):
    wanted = fleet.schedule("vm0", source="User")
    fleet.schedule("vm0", source="Platform")
    result = fleet.call("scheduled_events_approve", sources=["User"], only_mine=True)
    assert [each["event_id"] for each in result["results"]] == [wanted]


def test_a_selection_that_fits_nothing_is_no_error(fleet):
    result = fleet.call("scheduled_events_approve", only_mine=True)
    assert (result["changed"], result["results"]) == (False, [])


def test_approving_without_saying_what_is_an_error(fleet):
    fleet.schedule("vm0")
    result = fleet.call("scheduled_events_approve")
    assert "Say which events to approve" in result["msg"]
    assert not fleet.approvals()


def test_an_empty_list_of_ids_is_not_taken_for_all_events(fleet):
    fleet.schedule("vm0")
    result = fleet.call("scheduled_events_approve", event_ids=[])
    assert result["failed"]
    assert not fleet.approvals()


def test_an_event_that_is_not_there_is_an_error_that_says_what_to_do(fleet):
    result = fleet.call("scheduled_events_approve", event_ids=["no-such-event"])
    assert result["error_kind"] == "missing"
    assert "vm0 sees no event no-such-event" in result["msg"]


def test_an_event_that_is_not_there_can_be_fine(fleet):
    result = fleet.call("scheduled_events_approve", event_ids=["no-such-event"], missing="ok")
    assert (result["changed"], outcomes(result)) == (False, ["gone"])


def test_an_event_that_was_approved_and_is_over_is_no_error(fleet):
    event_id = fleet.schedule("vm0")
    fleet.call("scheduled_events_approve", event_ids=[event_id])
    fleet.simulator.finish(event_id)
    result = fleet.call("scheduled_events_approve", event_ids=[event_id])
    assert (result["changed"], outcomes(result)) == (False, ["gone"])


def test_nothing_is_sent_where_it_could_not_be_noted(fleet):
    event_id = fleet.schedule("vm0")
    fleet.journal_dir.mkdir()
    fleet.journal_dir.chmod(0o777)
    result = fleet.call("scheduled_events_approve", event_ids=[event_id])
    assert result["error_kind"] == "journal"
    assert not fleet.approvals()


def test_a_service_that_refuses_the_approval_is_reported(fleet):
    event_id = fleet.schedule("vm0")
    fleet.simulator.inject("500", vms=["vm0"], method="POST")
    result = fleet.call("scheduled_events_approve", event_ids=[event_id], retry_timeout=0)
    assert result["error_kind"] == "refused"
    assert "HTTP status 500" in result["msg"]
    assert "approving it again does no harm" in result["msg"]
    assert ".." not in result["msg"]


def test_an_approval_whose_answer_was_lost_is_seen_in_the_document(fleet):
    event_id = fleet.schedule("vm0")
    fleet.simulator.inject("reset", vms=["vm0"], method="POST", processed=True)
    result = fleet.call("scheduled_events_approve", event_ids=[event_id], retry_timeout=0)
    assert outcomes(result) == ["already_started"]


def test_the_approval_is_in_the_journal_with_its_actor(fleet):
    event_id = fleet.schedule("vm0")
    fleet.call("scheduled_events_approve", event_ids=[event_id], actor="job 42")
    entry = fleet.call("maintenance_journal", event_id=event_id, vm="vm0")["entries"][0]
    assert entry["approved_by"] == "job 42"
    assert not entry["is_open"]


def test_every_approval_is_one_line_in_the_log(fleet, monkeypatch):
    lines = []
    monkeypatch.setattr(
        "ansible_collections.azops.maintenance.plugins.module_utils._approval.log_line",
        lambda message, fields: lines.append((message, fields)),
    )
    event_id = fleet.schedule("vm0")
    fleet.call("scheduled_events_approve", event_ids=[event_id], actor="job 42")
    assert [(fields["event_id"], fields["actor"], fields["vm"]) for _message, fields in lines] == [
        (event_id, "job 42", "vm0")
    ]


def test_one_missing_event_holds_back_all_others(fleet):
    event_id = fleet.schedule("vm0")
    result = fleet.call("scheduled_events_approve", event_ids=[event_id, "no-such-event"])
    assert result["error_kind"] == "missing"
    assert not fleet.approvals()


def test_ids_and_only_mine_together_are_refused_instead_of_silently_leaving_out_events(fleet):
    event_id = fleet.schedule("vm1")
    result = fleet.call("scheduled_events_approve", event_ids=[event_id], only_mine=True)
    assert "require_mine" in result["msg"]
