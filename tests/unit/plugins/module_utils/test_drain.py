# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one backend of a drain has in the journal."""

import pytest

from ansible_collections.azops.maintenance.plugins.module_utils._drain import Deadline, Record, fact, sorted_ids
from ansible_collections.azops.maintenance.plugins.module_utils._errors import InputError, JournalError
from ansible_collections.azops.maintenance.plugins.module_utils._journal import Journal, Subject
from ansible_collections.azops.maintenance.plugins.module_utils._systemctl import unit_name


@pytest.fixture
def journal(tmp_path):
    journal = Journal(str(tmp_path / "journal"))
    for event_id in ("E1", "E2"):
        journal.begin(Subject(event_id, "vm0"), "test")
    return journal


def test_changes_are_noted_under_the_first_event(journal):
    Record(journal, "file", ["e2", "E1"], "VM0").remember({"path": "/flag"})
    assert len(journal.find("E1", "vm0").open_changes) == 1
    assert not journal.find("E2", "vm0").open_changes


def test_what_is_undone_is_this_backends_newest_first(journal):
    record = Record(journal, "file", ["E1", "E2"], "vm0")
    record.remember({"path": "/a"})
    Record(journal, "systemd", ["E1"], "vm0").remember({"unit": "x"})
    record.remember({"path": "/b"})
    assert [change.facts["path"] for change in record.to_undo()] == ["/b", "/a"]
    record.forget(record.to_undo()[0])
    assert [change.facts["path"] for change in record.to_undo()] == ["/a"]


def test_what_is_known_comes_from_every_event_of_this_vm(journal):
    journal.begin(Subject("E1", "vm1"), "test")
    Record(journal, "file", ["E1"], "vm1").remember({"path": "/other"})
    Record(journal, "file", ["E2"], "vm0").remember({"path": "/a"})
    assert [change.facts["path"] for change in Record(journal, "file", ["E1"], "vm0").known()] == ["/a"]


@pytest.mark.parametrize(("event_ids", "vm"), [([], "vm0"), ([" "], "vm0"), (["E1"], "")])
def test_nothing_is_drained_for_nothing(journal, event_ids, vm):
    with pytest.raises(InputError):
        Record(journal, "file", event_ids, vm)


def test_events_compare_without_regard_to_case():
    assert sorted_ids(["b", "A", "a", ""]) == ["a", "b"]


def test_a_fact_of_the_wrong_kind_is_an_error():
    assert fact({"unit": "x"}, "unit", str) == "x"
    with pytest.raises(JournalError):
        fact({"unit": 1}, "unit", str)


def test_a_deadline_passes():
    assert Deadline(0).is_over
    assert 0 < Deadline(60).left <= 60


def test_handing_over_moves_what_is_open_to_an_event_that_the_vm_is_still_out_for(journal):
    record = Record(journal, "file", ["E1"], "vm0")
    record.remember({"path": "/a"})
    record.remember({"path": "/b"})
    record.forget(record.to_undo()[0])
    assert journal.hand_over(["e1"], "VM0") == "E2"
    assert not journal.find("E1", "vm0").open_changes
    assert [change.facts for change in journal.find("E2", "vm0").open_changes] == [{"path": "/a"}]
    assert journal.hand_over(["E1"], "vm0") == "E2"
    assert len(journal.find("E2", "vm0").changes) == 1


def test_without_another_open_event_nothing_is_handed_over(journal):
    record = Record(journal, "file", ["E1"], "vm0")
    record.remember({"path": "/a"})
    assert journal.hand_over(["E1", "E2"], "vm0") is None
    journal.close("E2", "vm0", "done", "test")
    assert journal.hand_over(["E1"], "vm0") is None
    assert len(record.to_undo()) == 1


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("nginx", "nginx.service"),
        ("a@b.c", "a@b.c.service"),
        ("web.socket", "web.socket"),
        ("app@1.service", "app@1.service"),
        ("dev-disk-by\\x2dlabel.swap", "dev-disk-by\\x2dlabel.swap"),
    ],
)
def test_a_unit_without_a_suffix_is_a_service(given, full):
    assert unit_name(given) == full
