# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
import stat

import pytest

from ansible_collections.azops.maintenance.plugins.module_utils._errors import InputError, JournalError
from ansible_collections.azops.maintenance.plugins.module_utils._journal import Journal, Subject
from ansible_collections.azops.maintenance.plugins.module_utils._lease import Holder, LeaseBox

FIRST = Holder("run-1", "controller-a", 100)
SECOND = Holder("run-2", "controller-b", 200)
WRITABLE_BY_ALL = 0o777
SCOPE = "/subscriptions/s/scale/WEB"


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def box(directory, clock):
    return LeaseBox(str(directory), clock.now)


def test_a_free_lease_is_given_to_the_first_who_asks(box):
    assert box.current() is None
    lease = box.acquire(SCOPE, FIRST, 60)
    assert lease.as_dict() == {
        "scope": SCOPE,
        "run_id": "run-1",
        "controller": "controller-a",
        "pid": 100,
        "expires_at": "2026-03-01T12:01:00Z",
    }
    assert box.current() == lease


def test_a_second_run_is_told_who_holds_it(box):
    held = box.acquire(SCOPE, FIRST, 60)
    assert box.acquire(SCOPE, SECOND, 600) == held
    assert box.current() == held


def test_a_lease_ends_by_the_clock_of_the_vm(box, clock):
    box.acquire(SCOPE, FIRST, 60)
    clock.elapsed += 59
    assert box.acquire(SCOPE, SECOND, 60).holder == FIRST
    clock.elapsed += 1
    assert box.current() is None
    assert box.acquire(SCOPE, SECOND, 60).holder == SECOND


def test_a_run_renews_its_own_lease(box, clock):
    box.acquire(SCOPE, FIRST, 60)
    clock.elapsed += 50
    assert box.acquire(SCOPE, FIRST, 60).expires_at == "2026-03-01T12:01:50Z"
    clock.elapsed += 55
    assert box.current().holder == FIRST


def test_a_lease_is_taken_over_only_from_the_run_that_is_named(box):
    box.acquire(SCOPE, FIRST, 60)
    assert box.acquire(SCOPE, SECOND, 60, takeover_from="run-9").holder == FIRST
    assert box.acquire(SCOPE, SECOND, 60, takeover_from="run-1").holder == SECOND
    assert box.acquire(SCOPE, FIRST, 60).holder == SECOND


def test_naming_a_run_does_not_keep_a_free_lease_from_being_taken(box):
    assert box.acquire(SCOPE, SECOND, 60, takeover_from="run-1").holder == SECOND


def test_only_the_holder_gives_a_lease_back(box):
    held = box.acquire(SCOPE, FIRST, 60)
    assert box.release("run-2") == held
    assert box.current() == held
    assert box.release("run-1") is None
    assert box.current() is None
    assert box.release("run-1") is None


def test_giving_back_an_expired_lease_does_not_take_it_from_the_next_holder(box, clock):
    box.acquire(SCOPE, FIRST, 60)
    clock.elapsed += 61
    box.acquire(SCOPE, SECOND, 60)
    assert box.release("run-1").holder == SECOND
    assert box.current().holder == SECOND


def test_a_vm_has_one_lease_whatever_the_scope_is_called(box):
    held = box.acquire(SCOPE, FIRST, 60)
    assert box.acquire("another scope", SECOND, 60) == held


@pytest.mark.parametrize("seconds", [0, -1, 7 * 24 * 3600 + 1, 10**15])
def test_a_lease_without_a_sensible_length_is_refused(seconds, box, directory):
    with pytest.raises(InputError):
        box.acquire(SCOPE, FIRST, seconds)
    assert not directory.exists()


GOOD = {"scope": "s", "run_id": "r", "controller": "c", "pid": 1, "expires_at": "2027-01-01T00:00:00Z"}


def test_the_lease_that_the_damaged_ones_are_made_from_is_good(box, directory):
    box.acquire(SCOPE, FIRST, 60)
    (directory / "lease").write_text(json.dumps(GOOD))
    assert box.current().holder.run_id == "r"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\x00",
        b"[" * 100000,
        json.dumps(dict(GOOD, pid="x")).encode(),
        json.dumps(dict(GOOD, pid=None)).encode(),
        json.dumps(dict(GOOD, pid=float("inf"))).encode(),
        json.dumps(dict(GOOD, expires_at="soon")).encode(),
        json.dumps(dict(GOOD, expires_at=None)).encode(),
        json.dumps({"run_id": "r"}).encode(),
        json.dumps(dict(GOOD, scope=0)).encode().replace(b'"scope": 0', b'"scope": ' + b"[" * 900 + b"]" * 900),
    ],
)
def test_a_damaged_lease_counts_as_expired_and_is_replaced(content, box, directory):
    box.acquire(SCOPE, FIRST, 60)
    (directory / "lease").write_bytes(content)
    found = box.current()
    if found is not None:
        # Where a scope of brackets can still be turned into text, it is a lease of somebody.
        assert found.holder.run_id == "r"
        return
    assert box.release("run-1") is None
    assert box.acquire(SCOPE, SECOND, 60).holder == SECOND
    assert box.current().holder == SECOND


def test_a_symlink_is_not_followed_but_replaced(box, directory, tmp_path):
    box.acquire(SCOPE, FIRST, 60)
    outside = tmp_path / "outside"
    outside.write_text(json.dumps(GOOD))
    (directory / "lease").unlink()
    (directory / "lease").symlink_to(outside)
    assert box.current() is None
    box.acquire(SCOPE, SECOND, 60)
    assert json.loads(outside.read_text()) == GOOD
    assert box.current().holder == SECOND


def test_a_directory_in_place_of_the_lease_gives_our_own_error(box, directory):
    os.makedirs(str(directory / "lease"), mode=0o700)
    os.chmod(str(directory), 0o700)
    assert box.current() is None
    with pytest.raises(JournalError):
        box.acquire(SCOPE, FIRST, 60)


def test_a_directory_that_others_can_write_is_refused(box, directory):
    box.acquire(SCOPE, FIRST, 60)
    os.chmod(str(directory), WRITABLE_BY_ALL)
    for operation in (box.current, lambda: box.acquire(SCOPE, FIRST, 60), lambda: box.release("run-1")):
        with pytest.raises(JournalError):
            operation()


def test_the_lease_is_private_and_is_no_journal_entry(box, directory, clock):
    box.acquire(SCOPE, FIRST, 60)
    assert stat.S_IMODE(os.stat(str(directory / "lease")).st_mode) == 0o600
    journal = Journal(str(directory), clock.now)
    assert journal.read() == ((), ())
    journal.begin(Subject("E1", "web_0"), "a")
    assert box.current().holder == FIRST


def test_a_dry_run_says_what_would_be_and_writes_nothing(box, directory, clock, tmp_path):
    dry = LeaseBox(str(directory), clock.now, dry_run=True)
    assert dry.acquire(SCOPE, FIRST, 60).holder == FIRST
    assert dry.release("run-1") is None
    assert os.listdir(str(tmp_path)) == []
    held = box.acquire(SCOPE, FIRST, 60)
    content = (directory / "lease").read_bytes()
    before = os.stat(str(directory)).st_mtime_ns
    assert dry.acquire(SCOPE, SECOND, 60) == held
    assert dry.acquire(SCOPE, SECOND, 60, takeover_from="run-1").holder == SECOND
    assert dry.release("run-1") is None
    assert (directory / "lease").read_bytes() == content
    assert os.stat(str(directory)).st_mtime_ns == before
    assert box.current() == held
