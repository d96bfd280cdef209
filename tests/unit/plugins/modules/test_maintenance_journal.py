# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""maintenance_journal: what was drained, for which event, and how far it got."""

import pytest
from ansible.module_utils.basic import AnsibleModule

SUBJECT = {"event_id": "E1", "vm": "vm0"}


def journal(fleet, action, **options):
    return fleet.call("maintenance_journal", action=action, **dict(SUBJECT, **options))


def test_an_entry_goes_from_begin_to_close(fleet):
    journal(fleet, "begin", event_type="Reboot", resources=["vm0", "vm3"], not_before="2026-11-18T18:29:47Z")
    journal(fleet, "change", backend="systemd", facts={"units": ["nginx.service"]})
    assert journal(fleet, "phase", phase="drained")["entry"]["phase"] == "drained"
    undone = journal(fleet, "undo", change_number=1)["entry"]["changes"][0]
    assert undone["undone_at"] is not None
    entry = journal(fleet, "close")["entry"]
    assert (entry["phase"], entry["is_open"], entry["closed_because"]) == ("closed", False, "restored")


@pytest.mark.parametrize(
    ("action", "options"),
    [
        ("begin", {}),
        ("change", {"backend": "file", "facts": {"flag": "/run/out"}}),
        ("phase", {"phase": "drained"}),
        ("undo", {"change_number": 1}),
        ("close", {}),
    ],
)
def test_doing_it_twice_is_one_change(fleet, action, options):
    sequence = [
        ("begin", {}),
        ("change", {"backend": "file", "facts": {"flag": "/run/out"}}),
        ("phase", {"phase": "drained"}),
        ("undo", {"change_number": 1}),
        ("close", {}),
    ]
    for step, arguments in sequence:
        first = journal(fleet, step, **arguments)
        if step == action:
            assert first["changed"]
            assert not journal(fleet, action, **options)["changed"]
            return


def test_check_mode_writes_nothing_and_predicts_the_change(fleet):
    assert journal(fleet, "begin", check_mode=True)["changed"]
    assert journal(fleet, "change", check_mode=True, backend="file", facts={"flag": "x"})["changed"]
    assert not fleet.journal_dir.exists()


def test_the_difference_is_shown(fleet):
    diff = journal(fleet, "begin")["diff"]
    assert diff["before"] == {}
    assert diff["after"]["phase"] == "draining"


def test_an_entry_with_open_changes_cannot_be_closed(fleet):
    journal(fleet, "begin")
    journal(fleet, "change", backend="haproxy", facts={"server": "web/vm0"})
    result = journal(fleet, "close")
    assert result["failed"]
    assert "not undone (haproxy)" in result["msg"]


def test_the_changes_of_a_vm_that_does_not_come_back_can_be_abandoned(fleet):
    journal(fleet, "begin")
    journal(fleet, "change", backend="haproxy", facts={"server": "web/vm0"})
    assert not journal(fleet, "close", abandon=True, because="terminated")["entry"]["is_open"]


def test_facts_must_be_plain(fleet):
    journal(fleet, "begin")
    result = journal(fleet, "change", backend="x", facts={"nested": {"command": "rm"}})
    assert result["error_kind"] == "input"


def test_a_change_without_an_entry_is_an_error(fleet):
    result = journal(fleet, "change", backend="x", facts={})
    assert "no open entry for event E1 on vm0" in result["msg"]


def test_a_time_that_is_none_is_refused_before_anything_is_written(fleet):
    result = journal(fleet, "begin", not_before="tomorrow")
    assert result["error_kind"] == "input"
    assert fleet.call("maintenance_journal")["entries"] == []


def test_a_damaged_file_is_a_warning_and_the_others_are_read(fleet, monkeypatch):
    warnings = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda module, warning: warnings.append(warning))
    journal(fleet, "begin")
    (fleet.journal_dir / "broken.json").write_text("{")
    result = fleet.call("maintenance_journal")
    assert len(result["entries"]) == 1
    assert result["damaged"][0]["file"].endswith("broken.json")
    assert len(warnings) == 1
    assert "broken.json" in warnings[0]


def test_a_held_vm_is_not_drained(fleet):
    fleet.hold_file.write_text("moving the database")
    result = journal(fleet, "begin")
    assert result["error_kind"] == "held"
    assert "moving the database" in result["msg"]
    assert not fleet.journal_dir.exists()


def test_a_lease_is_held_by_one_run_at_a_time(fleet):
    first = fleet.call("maintenance_journal", action="acquire_lease", scope="web", run_id="a", controller="ops1", pid=7)
    second = fleet.call("maintenance_journal", action="acquire_lease", scope="WEB", run_id="b")
    assert (first["changed"], first["lease_held"]) == (True, True)
    assert (second["changed"], second["lease_held"]) == (False, False)
    assert (second["lease"]["run_id"], second["lease"]["controller"], second["lease"]["pid"]) == ("a", "ops1", 7)


def test_a_lease_is_taken_over_only_from_the_run_that_is_named(fleet):
    fleet.call("maintenance_journal", action="acquire_lease", scope="web", run_id="a")
    wrong = fleet.call("maintenance_journal", action="acquire_lease", scope="web", run_id="b", takeover_from="x")
    right = fleet.call("maintenance_journal", action="acquire_lease", scope="web", run_id="b", takeover_from="a")
    assert (wrong["lease_held"], right["lease_held"]) == (False, True)


def test_a_lease_is_taken_over_from_whoever_has_it_if_the_user_says_so(fleet):
    fleet.call("maintenance_journal", action="acquire_lease", scope="web", run_id="a")
    asked = fleet.call("maintenance_journal", action="acquire_lease", scope="web", run_id="b", takeover=False)
    told = fleet.call("maintenance_journal", action="acquire_lease", scope="web", run_id="b", takeover=True)
    assert (asked["lease_held"], told["lease_held"], told["changed"]) == (False, True, True)
    assert told["diff"]["before"]["run_id"] == "a"


def test_a_lease_that_nobody_has_can_be_taken_over_too(fleet):
    taken = fleet.call("maintenance_journal", action="acquire_lease", scope="web", run_id="b", takeover=True)
    assert (taken["lease_held"], taken["lease"]["controller"], taken["lease"]["pid"]) == (True, "unknown", 0)


def test_check_mode_takes_over_nothing(fleet):
    fleet.call("maintenance_journal", action="acquire_lease", scope="web", run_id="a")
    options = {"action": "acquire_lease", "scope": "web", "run_id": "b", "takeover": True}
    assert fleet.call("maintenance_journal", check_mode=True, **options)["changed"]
    left = fleet.call("maintenance_journal", action="acquire_lease", scope="web", run_id="c")
    assert left["lease"]["run_id"] == "a"


@pytest.mark.parametrize("action", ["acquire_lease", "release_lease"])
def test_a_lease_without_a_name_is_refused(fleet, action):
    assert "run_id" in fleet.call("maintenance_journal", action=action, scope="web")["msg"]


def test_when_an_event_started_is_noted_with_the_phase_after_it(fleet):
    journal(fleet, "begin")
    steps = journal(fleet, "phase", phase="gone", started_at="2026-11-18T18:16:02Z")["entry"]["steps"]
    assert [step["phase"] for step in steps] == ["draining", "started", "gone"]
    assert steps[1]["at"] == "2026-11-18T18:16:02Z"


def test_a_lease_is_given_back_only_by_its_holder(fleet):
    fleet.call("maintenance_journal", action="acquire_lease", scope="web", run_id="a")
    assert fleet.call("maintenance_journal", action="release_lease", scope="web", run_id="b")["lease"]["run_id"] == "a"
    released = fleet.call("maintenance_journal", action="release_lease", scope="web", run_id="a")
    assert (released["changed"], released["lease"]) == (True, None)


def test_check_mode_takes_no_lease(fleet):
    fleet.call("maintenance_journal", check_mode=True, action="acquire_lease", scope="web", run_id="a")
    assert not fleet.journal_dir.exists()


@pytest.mark.parametrize("name", ["event_id", "vm"])
def test_an_empty_name_is_refused(fleet, name):
    assert name in journal(fleet, "begin", **{name: " "})["msg"]


def test_a_relative_directory_is_refused(fleet):
    assert "not an absolute path" in journal(fleet, "begin", journal_dir="journal")["msg"]
