# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import contextlib
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.azops.maintenance.plugins.module_utils import _journal, _safe_files
from ansible_collections.azops.maintenance.plugins.module_utils._errors import InputError, JournalError
from ansible_collections.azops.maintenance.plugins.module_utils._journal import (
    OPEN_PHASES,
    Journal,
    Subject,
    check_facts,
)

FACTS = {"unit": "nginx.service", "was_active": True, "ports": [80, 443]}


def subject(event_id="E1", vm="web_0"):
    return Subject(event_id, vm, "Reboot", ("web_0", "web_1"), "2026-03-01T12:15:00Z")


def listing(directory):
    """Everything that a write would change: names, sizes, times, modes and contents."""
    found = {}
    for folder, _folders, names in os.walk(str(directory)):
        for name in [""] + names:
            path = os.path.join(folder, name)
            facts = os.lstat(path)
            content = b""
            if stat.S_ISREG(facts.st_mode):
                with open(path, "rb") as source:
                    content = source.read()
            found[path] = (facts.st_mtime_ns, facts.st_ctime_ns, facts.st_mode, facts.st_ino, content)
    return found


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "state" / "journal"


@pytest.fixture
def journal(directory, clock):
    return Journal(str(directory), clock.now)


@pytest.fixture
def dry(directory, clock):
    return Journal(str(directory), clock.now, dry_run=True)


@pytest.fixture
def drained(journal):
    """A journal with one open entry with two changes."""
    journal.begin(subject(), "runner")
    journal.record_change("E1", "web_0", "systemd", FACTS)
    journal.record_change("E1", "web_0", "haproxy", {"server": "web_0", "weight": 100})
    return journal


def path_of(journal, event_id="E1", vm="web_0"):
    return os.path.join(journal.directory, Subject(event_id, vm).file_name)


# What is written


def test_an_entry_tells_who_did_what_and_when(journal, clock):
    journal.begin(subject(), "runner")
    clock.elapsed += 10
    journal.record_change("E1", "web_0", "systemd", FACTS)
    clock.elapsed += 10
    journal.enter_phase("E1", "web_0", "drained", "runner")
    clock.elapsed += 10
    journal.note_approval(subject(), "leader")
    clock.elapsed += 10
    journal.undo_change("E1", "web_0", 1)
    journal.close("E1", "web_0", "restored", "watcher")
    assert journal.find("E1", "web_0").as_dict() == {
        "event_id": "E1",
        "vm": "web_0",
        "event_type": "Reboot",
        "resources": ["web_0", "web_1"],
        "not_before": "2026-03-01T12:15:00Z",
        "phase": "closed",
        "is_open": False,
        "steps": [
            {"phase": "draining", "at": "2026-03-01T12:00:00Z", "actor": "runner"},
            {"phase": "drained", "at": "2026-03-01T12:00:20Z", "actor": "runner"},
            {"phase": "approved", "at": "2026-03-01T12:00:30Z", "actor": "leader"},
            {"phase": "closed", "at": "2026-03-01T12:00:40Z", "actor": "watcher"},
        ],
        "changes": [
            {
                "number": 1,
                "backend": "systemd",
                "facts": FACTS,
                "made_at": "2026-03-01T12:00:10Z",
                "undone_at": "2026-03-01T12:00:40Z",
            }
        ],
        "approved_at": "2026-03-01T12:00:30Z",
        "approved_by": "leader",
        "closed_because": "restored",
    }


def test_every_operation_returns_what_is_then_on_disk(journal):
    for operation in (
        lambda: journal.begin(subject(), "a"),
        lambda: journal.record_change("E1", "web_0", "systemd", FACTS),
        lambda: journal.enter_phase("E1", "web_0", "drained", "a"),
        lambda: journal.note_approval(subject(), "a"),
        lambda: journal.undo_change("E1", "web_0", 1),
        lambda: journal.close("E1", "web_0", "restored", "a"),
        lambda: journal.begin(subject(), "a"),
    ):
        assert operation() == Journal(journal.directory).find("E1", "web_0")


def test_files_are_private_and_carry_a_format_version(drained, directory):
    assert stat.S_IMODE(os.stat(str(directory)).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(path_of(drained)).st_mode) == 0o600
    with open(path_of(drained), encoding="ascii") as source:
        assert json.load(source)["format"] == 1


def test_files_are_private_whatever_the_umask(directory):
    before = os.umask(0)
    try:
        journal = Journal(str(directory))
        journal.begin(subject(), "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(journal.directory).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(path_of(journal)).st_mode) == 0o600


@pytest.mark.parametrize("hostile", ["../../etc/passwd", "/etc/passwd", "a/b", ".", "x" * 5000, "\x00", "$(id)"])
def test_nothing_of_an_id_or_a_name_reaches_a_file_name(hostile, journal, directory, tmp_path):
    journal.begin(subject(hostile, hostile), "a")
    names = [name for name in os.listdir(str(directory)) if name != ".lock"]
    assert len(names) == 1 and len(names[0]) == 45
    assert set(names[0][:40]) <= set("0123456789abcdef")
    assert os.listdir(str(tmp_path)) == ["state"]
    assert journal.find(hostile.upper(), hostile).subject.event_id == hostile


def test_ids_and_names_compare_without_regard_to_case(journal):
    journal.begin(subject("abc", "Web_0"), "a")
    journal.record_change("ABC", "WEB_0", "systemd", FACTS)
    assert len(journal.read().entries) == 1
    assert journal.find("aBc", "wEB_0").subject.event_id == "abc"


@pytest.mark.parametrize(
    "one, other", [(("E1", "web_0"), ("E2", "web_0")), (("E1", "a"), ("E1", "b")), (("a\nb", "c"), ("a", "b\nc"))]
)
def test_different_events_and_vms_have_different_entries(one, other, journal):
    journal.begin(subject(*one), "a")
    assert journal.find(*other) is None
    journal.begin(subject(*other), "a")
    assert len(journal.read().entries) == 2


def test_entries_are_read_oldest_first(journal, clock):
    for event_id in ("E3", "E1", "E2"):
        journal.begin(subject(event_id), "a")
        clock.elapsed += 1
    assert [entry.subject.event_id for entry in journal.read().entries] == ["E3", "E1", "E2"]


def test_a_journal_that_is_not_there_is_empty(journal, directory):
    assert journal.read() == ((), ())
    assert journal.find("E1", "web_0") is None
    assert not directory.exists()


# The rules of an entry


def test_what_is_to_be_undone_comes_newest_first(drained):
    drained.record_change("E1", "web_0", "flag", {"name": "drained"})
    assert [change.number for change in drained.find("E1", "web_0").open_changes] == [3, 2, 1]
    drained.undo_change("E1", "web_0", 2)
    assert [change.backend for change in drained.find("E1", "web_0").open_changes] == ["flag", "systemd"]


@pytest.mark.parametrize(
    "operation",
    [
        lambda journal: journal.begin(subject(), "other"),
        lambda journal: journal.record_change("e1", "WEB_0", "systemd", dict(FACTS)),
        lambda journal: journal.enter_phase("E1", "web_0", "drained", "other"),
        lambda journal: journal.undo_change("E1", "web_0", 2),
        lambda journal: journal.note_approval(subject(), "other"),
    ],
    ids=["begin", "record_change", "enter_phase", "undo_change", "note_approval"],
)
def test_doing_it_again_changes_nothing(operation, drained, clock):
    drained.undo_change("E1", "web_0", 2)
    drained.note_approval(subject(), "leader")
    drained.enter_phase("E1", "web_0", "drained", "runner")
    before = listing(drained.directory)
    entry = drained.find("E1", "web_0")
    clock.elapsed += 100
    assert operation(drained) == entry
    after = listing(drained.directory)
    assert after[path_of(drained)] == before[path_of(drained)]


def test_closing_again_changes_nothing(drained, clock):
    closed = drained.close("E1", "web_0", "vm lost", "a", abandon=True)
    before = listing(drained.directory)[path_of(drained)]
    clock.elapsed += 100
    assert drained.close("E1", "web_0", "restored", "b") == closed
    assert listing(drained.directory)[path_of(drained)] == before


def test_the_same_change_made_again_after_it_was_undone_is_another_change(drained):
    drained.undo_change("E1", "web_0", 1)
    entry = drained.record_change("E1", "web_0", "systemd", FACTS)
    assert [(change.number, change.backend) for change in entry.open_changes] == [(3, "systemd"), (2, "haproxy")]


def test_closing_refuses_while_something_is_not_undone(drained):
    before = listing(drained.directory)[path_of(drained)]
    with pytest.raises(JournalError) as caught:
        drained.close("E1", "web_0", "restored", "a")
    assert "haproxy, systemd" in str(caught.value) and "E1" in str(caught.value) and "web_0" in str(caught.value)
    drained.undo_change("E1", "web_0", 1)
    with pytest.raises(JournalError) as caught:
        drained.close("E1", "web_0", "restored", "a")
    assert "one change is" in str(caught.value)
    assert listing(drained.directory)[path_of(drained)] != before
    drained.undo_change("E1", "web_0", 2)
    assert not drained.close("E1", "web_0", "restored", "a").is_open


def test_no_phase_closes_an_entry_past_that_refusal(drained):
    with pytest.raises(InputError):
        drained.enter_phase("E1", "web_0", "closed", "a")
    assert drained.find("E1", "web_0").is_open


def test_abandoned_changes_stay_written_down(drained):
    entry = drained.close("E1", "web_0", "the VM is lost", "a", abandon=True)
    assert not entry.is_open and len(entry.open_changes) == 2
    assert entry.closed_because == "the VM is lost"


def test_an_entry_can_be_opened_again(drained):
    drained.close("E1", "web_0", "lost", "a", abandon=True)
    entry = drained.begin(subject(), "b")
    assert entry.is_open and entry.closed_because is None
    assert [step.phase for step in entry.steps] == ["draining", "closed", "draining"]


@pytest.mark.parametrize(
    "operation",
    [
        lambda journal: journal.record_change("E1", "web_0", "systemd", FACTS),
        lambda journal: journal.undo_change("E1", "web_0", 1),
        lambda journal: journal.enter_phase("E1", "web_0", "drained", "a"),
        lambda journal: journal.close("E9", "web_0", "restored", "a"),
    ],
    ids=["record_change", "undo_change", "enter_phase", "close"],
)
@pytest.mark.parametrize("was_closed", [True, False])
def test_without_an_open_entry_it_is_refused(operation, was_closed, journal):
    if was_closed:
        journal.begin(subject(), "a")
        journal.close("E1", "web_0", "restored", "a")
    with pytest.raises(JournalError) as caught:
        operation(journal)
    assert "no open entry" in str(caught.value) and "Begin one first" in caught.value.remedy


def test_undoing_what_was_never_done_is_refused(drained):
    with pytest.raises(InputError) as caught:
        drained.undo_change("E1", "web_0", 3)
    assert "no change 3" in str(caught.value)


@pytest.mark.parametrize("phase", ["", "dancing", None, 5, ["drained"]])
def test_an_unknown_phase_is_refused(phase, drained):
    with pytest.raises(InputError) as caught:
        drained.enter_phase("E1", "web_0", phase, "a")
    assert "draining, drained" in str(caught.value)


@pytest.mark.parametrize("phase", OPEN_PHASES)
def test_every_open_phase_can_be_entered(phase, journal):
    journal.begin(subject(), "a")
    entry = journal.enter_phase("E1", "web_0", phase, "b")
    assert entry.phase == phase and entry.is_open


def test_an_approval_without_a_drain_leaves_nothing_to_restore(journal):
    entry = journal.note_approval(subject(), "leader")
    assert not entry.is_open and entry.open_changes == ()
    assert (entry.approved_by, entry.closed_because) == ("leader", "approved without a drain")


def test_an_approval_of_an_open_entry_leaves_it_open(drained):
    entry = drained.note_approval(subject(), "leader")
    assert entry.phase == "approved" and entry.is_open and len(entry.open_changes) == 2


@pytest.mark.parametrize(
    "facts",
    [
        {"a": {}},
        {"a": [["b"]]},
        {"a": [{}]},
        {"a": ("b",)},
        {"a": b"b"},
        {"a": object()},
        {7: "b"},
        {None: "b"},
        {"a": float("nan")},
        {"a": [float("inf")]},
        {"a": "\ud800"},
        {"\ud800": "a"},
    ],
)
def test_facts_are_plain(facts, drained):
    before = listing(drained.directory)
    with pytest.raises(InputError) as caught:
        drained.record_change("E1", "web_0", "systemd", facts)
    assert "A fact is a word" in caught.value.remedy
    assert listing(drained.directory) == before


@pytest.mark.parametrize("facts", [{}, {"a": None, "b": True, "c": 1.5, "d": ["x", 1, None], "e": "\u00e4\n{{ x }}"}])
def test_plain_facts_come_back_as_they_were(facts, drained):
    check_facts(facts)
    drained.record_change("E1", "web_0", "systemd", facts)
    assert drained.find("E1", "web_0").changes[-1].facts == facts


@pytest.mark.parametrize(
    "bad",
    [
        subject()._replace(event_type=None),
        subject()._replace(vm="\ud800"),
        subject()._replace(not_before="soon"),
        subject()._replace(resources=("a", 7)),
    ],
)
def test_what_could_not_be_read_again_is_not_written(bad, journal, directory):
    with pytest.raises(InputError) as caught:
        journal.begin(bad, "a")
    assert "cannot be written" in str(caught.value)
    assert [name for name in os.listdir(str(directory)) if name != ".lock"] == []


def test_an_entry_that_grows_too_large_is_refused_and_the_old_one_stays(drained):
    before = drained.find("E1", "web_0")
    with pytest.raises(JournalError) as caught:
        drained.record_change("E1", "web_0", "systemd", {"a": "x" * 2000000})
    assert "larger" in str(caught.value)
    assert drained.find("E1", "web_0") == before


# Old entries


def close_one(journal, event_id):
    journal.begin(subject(event_id), "a")
    journal.close(event_id, "web_0", "restored", "a")


def test_closed_entries_are_forgotten_after_thirty_days(journal, clock):
    close_one(journal, "old")
    clock.elapsed += timedelta(days=1).total_seconds()
    close_one(journal, "younger")
    journal.begin(subject("open"), "a")
    clock.elapsed += timedelta(days=29).total_seconds()
    close_one(journal, "new")
    assert {entry.subject.event_id for entry in journal.read().entries} == {"old", "younger", "open", "new"}
    clock.elapsed += 1
    close_one(journal, "newest")
    assert {entry.subject.event_id for entry in journal.read().entries} == {"younger", "open", "new", "newest"}


def test_an_approval_makes_room_as_well(journal, clock):
    close_one(journal, "old")
    clock.elapsed += timedelta(days=31).total_seconds()
    journal.note_approval(subject("new"), "a")
    assert [entry.subject.event_id for entry in journal.read().entries] == ["new"]


def test_at_most_two_hundred_closed_entries_are_kept_and_all_open_ones():
    assert _journal.KEEP_CLOSED == 200
    assert timedelta(days=30) == _journal.KEEP_CLOSED_FOR


def test_the_newest_closed_entries_are_the_ones_that_are_kept(journal, clock, monkeypatch):
    monkeypatch.setattr(_journal, "KEEP_CLOSED", 3)
    journal.begin(subject("open"), "a")
    for number in range(6):
        clock.elapsed += 1
        close_one(journal, "E{0}".format(number))
    assert [entry.subject.event_id for entry in journal.read().entries] == ["open", "E3", "E4", "E5"]


def test_what_killed_writers_left_is_removed_after_an_hour(drained, directory):
    old, young = directory / "x.json.1.tmp", directory / "x.json.2.tmp"
    old.write_text("{")
    young.write_text("{")
    os.utime(str(old), (time.time() - 3700, time.time() - 3700))
    drained.close("E1", "web_0", "lost", "a", abandon=True)
    assert not old.exists() and young.exists()


def test_a_file_that_cannot_be_removed_gives_our_own_error(journal, clock, monkeypatch):
    close_one(journal, "old")
    clock.elapsed += timedelta(days=31).total_seconds()
    unlink = os.unlink

    def no_unlink(path, **options):
        if path == path_of(journal, "old"):
            raise PermissionError(1, "Operation not permitted")
        return unlink(path, **options)

    monkeypatch.setattr(_safe_files.os, "unlink", no_unlink)
    with pytest.raises(JournalError) as caught:
        close_one(journal, "new")
    assert "Cannot remove" in str(caught.value)


# Check mode


@pytest.mark.parametrize(
    "operation",
    [
        lambda journal: journal.begin(subject(), "a"),
        lambda journal: journal.begin(subject("closed"), "a"),
        lambda journal: journal.record_change("E1", "web_0", "other", FACTS),
        lambda journal: journal.undo_change("E1", "web_0", 1),
        lambda journal: journal.enter_phase("E1", "web_0", "drained", "a"),
        lambda journal: journal.note_approval(subject(), "a"),
        lambda journal: journal.note_approval(subject("fresh"), "a"),
        lambda journal: journal.close("E1", "web_0", "lost", "a", abandon=True),
        lambda journal: journal.read(),
    ],
    ids=["begin", "reopen", "record_change", "undo_change", "enter_phase", "approve", "approve_new", "close", "read"],
)
def test_a_dry_run_says_what_would_be_and_writes_nothing(operation, drained, dry, clock, directory):
    close_one(drained, "closed")
    close_one(drained, "ancient")
    (directory / "x.json.1.tmp").write_text("")
    os.utime(str(directory / "x.json.1.tmp"), (1, 1))
    clock.elapsed += timedelta(days=90).total_seconds()
    before = listing(directory)
    would_be = operation(dry)
    assert listing(directory) == before
    if not isinstance(would_be, _journal.Snapshot) and operation(drained) is not None:
        assert would_be == drained.find(would_be.subject.event_id, "web_0")


@pytest.mark.parametrize(
    "operation",
    [
        lambda journal: journal.begin(subject(), "a"),
        lambda journal: journal.record_change("E1", "web_0", "systemd", FACTS),
        lambda journal: journal.enter_phase("E1", "web_0", "drained", "a"),
        lambda journal: journal.note_approval(subject(), "a"),
        lambda journal: journal.close("E1", "web_0", "restored", "a"),
    ],
    ids=["begin", "record_change", "enter_phase", "note_approval", "close"],
)
def test_a_dry_run_does_not_even_make_the_directory(operation, dry, tmp_path):
    operation(dry)
    assert os.listdir(str(tmp_path)) == []


def test_a_dry_run_refuses_what_the_real_run_would_refuse(drained, dry):
    with pytest.raises(JournalError):
        dry.close("E1", "web_0", "restored", "a")
    with pytest.raises(InputError):
        dry.record_change("E1", "web_0", "systemd", {"a": {}})


# Damage


def entry_text(**changes):
    value = {
        "format": 1,
        "event_id": "E1",
        "vm": "web_0",
        "event_type": "Reboot",
        "resources": ["web_0"],
        "not_before": None,
        "steps": [{"phase": "draining", "at": "2026-03-01T12:00:00Z", "actor": "a"}],
        "changes": [],
        "approved_at": None,
        "approved_by": None,
        "closed_because": None,
    }
    value.update(changes)
    return json.dumps(value).encode()


CHANGE = {"number": 1, "backend": "x", "facts": {}, "made_at": "2026-03-01T12:00:00Z", "undone_at": None}
DAMAGE = {
    "empty": b"",
    "truncated": entry_text()[:50],
    "zeroes": b"\x00" * 4096,
    "binary": bytes(bytearray(range(256))),
    "not_utf8": b'{"format": "\xff"}',
    "a_list": b"[]",
    "a_number": b"7",
    "deep": b"[" * 100000,
    "deep_inside": b'{"format": ' + b"[" * 900 + b"]" * 900 + b"}",
    "deep_in_a_fact": entry_text(changes=[dict(CHANGE, facts={"a": 0})]).replace(
        b'{"a": 0}', b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}"
    ),
    "huge": b'{"format": 1, "x": "' + b"x" * 1100000 + b'"}',
    "no_format": b"{}",
    "newer_format": entry_text(format=2),
    "format_a_word": entry_text(format="1"),
    "id_missing": entry_text().replace(b'"event_id"', b'"other"'),
    "id_a_number": entry_text(event_id=7),
    "id_of_another": entry_text(event_id="E2"),
    "vm_null": entry_text(vm=None),
    "lone_surrogate": entry_text(event_type="\ud800"),
    "a_megabyte_for_a_word": entry_text(event_type=["x" * 900000]),
    "resources_a_word": entry_text(resources="web_0"),
    "resources_null": entry_text(resources=None),
    "resources_of_numbers": entry_text(resources=[1]),
    "no_steps": entry_text(steps=[]),
    "steps_an_object": entry_text(steps={"a": 1}),
    "steps_of_words": entry_text(steps=["draining"]),
    "phase_unknown": entry_text(steps=[{"phase": "dancing", "at": "2026-03-01T12:00:00Z", "actor": "a"}]),
    "phase_a_list": entry_text(steps=[{"phase": [], "at": "2026-03-01T12:00:00Z", "actor": "a"}]),
    "time_of_a_step_bad": entry_text(steps=[{"phase": "drained", "at": "soon", "actor": "a"}]),
    "actor_missing": entry_text(steps=[{"phase": "drained", "at": "2026-03-01T12:00:00Z"}]),
    "change_a_word": entry_text(changes=["x"]),
    "change_without_facts": entry_text(changes=[{"number": 1}]),
    "facts_a_list": entry_text(changes=[dict(CHANGE, facts=[])]),
    "facts_nested": entry_text(changes=[dict(CHANGE, facts={"a": {}})]),
    "facts_not_a_number": entry_text(changes=[dict(CHANGE, facts={"a": float("nan")})]),
    "number_infinite": entry_text(changes=[dict(CHANGE, number=float("inf"))]),
    "number_a_word": entry_text(changes=[dict(CHANGE, number="1")]),
    "approved_at_bad": entry_text(approved_at="yes"),
    "approved_by_a_list": entry_text(approved_by=[]),
    "closed_because_a_number": entry_text(closed_because=1),
}


def check_one_is_damaged(journal, path):
    snapshot = journal.read()
    assert [entry.subject.event_id for entry in snapshot.entries] == ["intact"]
    assert [damaged.file for damaged in snapshot.damaged] == [path]
    assert 0 < len(snapshot.damaged[0].reason) < 300
    json.dumps(snapshot.as_dict(), ensure_ascii=False).encode("utf-8")
    with pytest.raises(JournalError) as caught:
        journal.find("E1", "web_0")
    assert path in str(caught.value) and "E1" in str(caught.value) and "by hand" in caught.value.remedy
    with pytest.raises(JournalError):
        journal.begin(subject(), "a")
    journal.record_change("intact", "web_0", "systemd", FACTS)


def test_the_entry_that_the_damaged_ones_are_made_from_is_good(journal):
    journal.begin(subject("intact"), "a")
    with open(path_of(journal), "wb") as target:
        target.write(entry_text(changes=[CHANGE]))
    assert journal.find("E1", "web_0").phase == "draining"
    assert journal.read().damaged == ()


@pytest.mark.parametrize("content", list(DAMAGE.values()), ids=list(DAMAGE))
def test_a_damaged_file_is_reported_kept_and_hides_no_other(content, journal):
    journal.begin(subject("intact"), "a")
    with open(path_of(journal), "wb") as target:
        target.write(content)
    check_one_is_damaged(journal, path_of(journal))
    with open(path_of(journal), "rb") as source:
        assert source.read() == content


def make_symlink(path, outside):
    outside.write_bytes(entry_text())
    os.symlink(str(outside), path)


@pytest.mark.parametrize(
    "make",
    [
        make_symlink,
        lambda path, outside: os.symlink(str(outside), path),
        lambda path, outside: os.symlink(path, path),
        lambda path, outside: os.mkdir(path),
        lambda path, outside: os.mkfifo(path),
    ],
    ids=["symlink", "dangling_symlink", "loop", "directory", "fifo"],
)
def test_what_is_no_plain_file_is_damage_too_and_is_never_followed(make, journal, tmp_path):
    journal.begin(subject("intact"), "a")
    make(path_of(journal), tmp_path / "outside")
    open_before = len(os.listdir("/proc/self/fd"))
    check_one_is_damaged(journal, path_of(journal))
    assert len(os.listdir("/proc/self/fd")) == open_before


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(
    st.dictionaries(
        st.sampled_from(sorted(json.loads(entry_text().decode()))),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(
                    st.sampled_from(["phase", "at", "actor", "number", "backend", "facts", "made_at", "undone_at"]),
                    inner,
                )
            ),
            max_leaves=5,
        ),
        max_size=3,
    )
)
def test_any_json_is_an_entry_or_a_value_error(changes):
    value = json.loads(entry_text().decode())
    value.update(changes)
    with contextlib.suppress(ValueError):
        entry = _journal._from_json(value)
        assert _journal._from_json(_journal._to_json(entry)) == entry
        json.dumps(entry.as_dict(), allow_nan=False)


# Directories that cannot be trusted or used


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_directory_that_others_can_write_is_refused(mode, drained, directory):
    os.chmod(str(directory), mode)
    for operation in (drained.read, drained.check_writable, lambda: drained.find("E1", "web_0")):
        with pytest.raises(JournalError) as caught:
            operation()
        assert "cannot be trusted" in str(caught.value) and str(directory) in str(caught.value)
    with pytest.raises(JournalError):
        drained.begin(subject("E2"), "a")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(drained, directory):
    os.chown(str(directory), 12345, -1)
    with pytest.raises(JournalError) as caught:
        drained.read()
    assert "belongs to user 12345" in str(caught.value)


def test_a_symlink_in_place_of_the_directory_is_refused(drained, directory, tmp_path):
    (tmp_path / "link").symlink_to(directory)
    with pytest.raises(JournalError) as caught:
        Journal(str(tmp_path / "link")).read()
    assert "not a directory" in str(caught.value)


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "journal"):
        for operation in (lambda journal: journal.read(), lambda journal: journal.begin(subject(), "a")):
            with pytest.raises(JournalError) as caught:
                operation(Journal(str(path)))
            assert caught.value.remedy


def test_a_lock_that_another_process_holds_is_named(drained, directory, monkeypatch):
    monkeypatch.setattr(_safe_files, "LOCK_PATIENCE", 0.03)
    with _safe_files.locked(str(directory)):
        with pytest.raises(JournalError) as caught:
            drained.begin(subject("E2"), "a")
        assert "locked by another process" in str(caught.value) and ".lock" in caught.value.remedy
        assert drained.find("E1", "web_0") is not None
    drained.begin(subject("E2"), "a")


def test_a_writable_journal_is_left_as_it_was(drained, directory):
    names = sorted(os.listdir(str(directory)))
    drained.check_writable()
    assert sorted(os.listdir(str(directory))) == names


# Real processes: killed, out of space, many at once

CHILD = """
import resource, sys
sys.path[:0] = {path!r}
from ansible_collections.azops.maintenance.plugins.module_utils._errors import MaintenanceError
from ansible_collections.azops.maintenance.plugins.module_utils._journal import Journal, Subject
directory, name = sys.argv[1:3]
journal = Journal(directory)
{work}
"""
WRITE_FOR_EVER = """
print("ready", flush=True)
for number in range(1000000):
    journal.begin(Subject("E1", "web_0"), "a")
    journal.record_change("E1", "web_0", "b", dict(number=number, filling="x" * 20000))
    journal.undo_change("E1", "web_0", 1)
    journal.close("E1", "web_0", "restored", "a", abandon=True)
    import os; os.unlink(os.path.join(directory, Subject("E1", "web_0").file_name))
"""
WRITE_MANY = """
for number in range(15):
    journal.record_change("shared", "web_0", name, dict(number=number))
    journal.begin(Subject(name + str(number), "web_0"), name)
"""


def child(work, directory, name="child", **options):
    program = CHILD.format(path=[path for path in sys.path if path], work=work)
    command = [sys.executable, "-c", program, str(directory), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_a_kill_at_any_instant_leaves_the_old_entry_or_the_new_one(journal, directory):
    journal.begin(subject("intact"), "a")
    chance = random.Random(20260301)
    for _round in range(12):
        writer = child(WRITE_FOR_EVER, directory)
        try:
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0.0, 0.03))
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        snapshot = journal.read()
        assert snapshot.damaged == ()
        assert "intact" in [entry.subject.event_id for entry in snapshot.entries]
        for entry in snapshot.entries:
            assert all(len(change.facts["filling"]) == 20000 for change in entry.changes)
        journal.begin(subject("after the kill"), "a")


WAYS_TO_STOP = ["open", "write", "fsync", "rename", "sync_directory"]


@pytest.mark.parametrize("place", WAYS_TO_STOP)
def test_a_kill_at_each_step_of_a_write_leaves_the_old_entry_or_the_new_one(place, drained, directory):
    old = drained.find("E1", "web_0")
    work = """
import os, signal
from ansible_collections.azops.maintenance.plugins.module_utils import _safe_files
def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)
place = {place!r}
if place == "open":
    fdopen = os.fdopen
    os.fdopen = lambda handle, mode, **options: die() if mode == "wb" else fdopen(handle, mode, **options)
elif place == "write":
    def half(handle, mode):
        os.write(handle, b'{{"format": 1, ')
        die()
    os.fchmod = half
elif place == "sync_directory":
    _safe_files.sync_directory = die
else:
    setattr(os, place, die)
journal.enter_phase("E1", "web_0", "drained", "b")
""".format(place=place)
    writer = child(work, directory)
    _out, errors = writer.communicate()
    assert writer.returncode == -signal.SIGKILL, errors
    snapshot = drained.read()
    assert snapshot.damaged == ()
    phase = "drained" if place == "sync_directory" else "draining"
    assert [(entry.subject, entry.phase) for entry in snapshot.entries] == [(old.subject, phase)]
    assert drained.enter_phase("E1", "web_0", "drained", "c").phase == "drained"


def test_every_write_reaches_the_disk_before_it_takes_the_old_ones_place(drained, monkeypatch):
    calls = []
    for name in ("fsync", "rename"):
        original = getattr(os, name)
        monkeypatch.setattr(
            _safe_files.os, name, lambda *args, name=name, original=original: (calls.append(name), original(*args))[1]
        )
    drained.enter_phase("E1", "web_0", "drained", "a")
    assert calls == ["fsync", "rename", "fsync"]


def test_several_writers_lose_nothing(journal, directory):
    journal.begin(subject("shared"), "a")
    writers = [child(WRITE_MANY, directory, "w{0}".format(number)) for number in range(4)]
    for writer in writers:
        _out, errors = writer.communicate()
        assert writer.returncode == 0, errors
    shared = journal.find("shared", "web_0")
    assert len(shared.changes) == 60
    assert [change.number for change in shared.changes] == list(range(1, 61))
    assert len({(change.backend, change.facts["number"]) for change in shared.changes}) == 60
    assert len(journal.read().entries) == 61


def test_a_full_disk_leaves_the_old_entry_and_gives_our_own_error(drained, directory):
    before = drained.find("E1", "web_0")
    work = """
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for work in (
    lambda: journal.record_change("E1", "web_0", "b", {"filling": "x" * 9000}),
    lambda: journal.begin(Subject("E2", "x" * 9000), "a"),
):
    try:
        work()
    except MaintenanceError as error:
        assert "File too large" in str(error), error
    else:
        raise SystemExit("it was written")
"""
    writer = child(work, directory)
    _out, errors = writer.communicate()
    assert writer.returncode == 0, errors
    assert drained.find("E1", "web_0") == before
    assert len(drained.read().entries) == 1
    assert [name for name in os.listdir(str(directory)) if name.endswith(".tmp")] == []


def test_a_disk_without_any_space_is_noticed_before_an_approval(directory):
    os.makedirs(str(directory), mode=0o700)
    work = """
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    journal.check_writable()
except MaintenanceError as error:
    assert error.kind == "journal", error
else:
    raise SystemExit("it was writable")
"""
    writer = child(work, directory)
    _out, errors = writer.communicate()
    assert writer.returncode == 0, errors
    assert os.listdir(str(directory)) == [".lock"]
