# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
import stat

import pytest

from ansible_collections.azops.maintenance.plugins.module_utils import _approval, _client
from ansible_collections.azops.maintenance.plugins.module_utils._approval import OUTCOMES, Approver, Guard, Outcome
from ansible_collections.azops.maintenance.plugins.module_utils._client import MetadataClient
from ansible_collections.azops.maintenance.plugins.module_utils._errors import (
    DocumentError,
    JournalError,
    NotAzureError,
    ServiceError,
)
from ansible_collections.azops.maintenance.plugins.module_utils._journal import Journal, Subject
from ansible_collections.azops.maintenance.plugins.module_utils._selection import Selection

ALL = Selection(types=("Reboot",))
WRITABLE_BY_ALL = 0o777


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def journal(directory, clock):
    return Journal(str(directory), clock.now)


@pytest.fixture
def log(monkeypatch):
    lines = []
    monkeypatch.setattr(_approval, "log_line", lambda message, fields: lines.append((message, fields)))
    return lines


@pytest.fixture
def approve(azure, journal, clock, log):
    """Approve from the VM web_0; the outcome per event id."""
    client = MetadataClient(azure.url, retry_for=5, clock=clock.monotonic, sleep=clock.sleep)

    def run(*event_ids, **options):
        selection = options.pop("selection", Selection(event_ids=event_ids))
        dry_run = options.pop("dry_run", False)
        outcomes = Approver(client, journal, "web_0", "runner").approve(selection, Guard(**options), dry_run)
        assert all(outcome.outcome in OUTCOMES for outcome in outcomes)
        json.dumps([outcome.as_dict() for outcome in outcomes])
        return {outcome.event_id: outcome for outcome in outcomes}

    yield run
    client.close()


# What becomes of an approval


def test_an_approved_event_that_has_started_is_approved(approve, azure, journal):
    azure.add("E1")
    azure.on_post = azure.start
    assert approve("E1") == {"E1": Outcome("E1", "approved", None, "Reboot", ("web_0", "web_1"), False)}
    assert azure.server.approved_ids() == ["E1"]
    assert journal.find("E1", "web_0").approved_by == "runner"


def test_an_approved_event_that_is_gone_at_once_is_approved(approve, azure):
    azure.add("E1")
    azure.on_post = azure.remove
    assert approve("E1")["E1"][1:3] == ("approved", None)
    assert not approve("E1")["E1"].start_pending


def test_an_approved_event_that_other_tenants_hold_up_is_pending(approve, azure):
    azure.add("E1")
    outcome = approve("E1")["E1"]
    assert (outcome.outcome, outcome.start_pending) == ("approved", True)


def test_an_event_is_approved_once(approve, azure, clock):
    azure.add("E1")
    approve("E1")
    clock.elapsed += 60
    outcome = approve("E1")["E1"]
    assert (outcome.outcome, outcome.start_pending) == ("already_approved", True)
    assert "2026-03-01T12:00:00Z by runner" in outcome.reason
    assert len(azure.server.posts()) == 1


def test_an_event_that_has_started_needs_no_approval(approve, azure, directory):
    azure.add("E1", EventStatus="Started", NotBefore="")
    assert approve("E1")["E1"].outcome == "already_started"
    assert azure.server.posts() == []
    assert not directory.exists()


def test_an_event_that_is_not_there_is_gone(approve, azure, directory):
    azure.add("E2")
    assert approve("E1") == {"E1": Outcome("E1", "gone", "it is over, was cancelled, or the id is wrong")}
    assert azure.server.posts() == []
    assert not directory.exists()


def test_one_missing_event_holds_back_all_others(approve, azure):
    azure.add("E2")
    assert approve("E1", "E2")["E2"].outcome == "would_approve"
    assert azure.server.posts() == []


def test_the_id_is_echoed_as_it_came_whatever_the_spelling_asked_for(approve, azure, journal):
    azure.add("aBcD", Resources=["WEB_0"])
    outcomes = approve("ABCD", "abcd", require_mine=True, require_leader=True, expect_resources=["Web_0"])
    assert list(outcomes) == ["aBcD"]
    assert azure.server.approved_ids() == ["aBcD"]
    assert approve("ABcd")["aBcD"].outcome == "already_approved"


def test_a_missing_event_in_two_spellings_is_one_missing_event(approve, azure, clock, journal):
    client = MetadataClient(azure.url, clock=clock.monotonic, sleep=clock.sleep)
    selection = Selection(event_ids=("gone", "GONE", "other"))
    outcomes = Approver(client, journal, "web_0", "a").approve(selection, Guard(), False)
    client.close()
    assert [outcome.event_id.lower() for outcome in outcomes] == ["gone", "other"]


def test_a_selection_approves_all_that_fit_and_nothing_else(approve, azure):
    azure.add("E1")
    azure.add("E2", EventType="Freeze")
    azure.add("E3", Resources=["db_0"])
    assert sorted(approve(selection=ALL)) == ["E1", "E3"]
    assert azure.server.approved_ids() == ["E1", "E3"]


def test_nothing_selected_is_nothing_done(approve, azure, directory):
    azure.add("E1", EventType="Freeze")
    assert approve(selection=ALL) == {}
    assert azure.server.posts() == []
    assert not directory.exists()


# Guards


@pytest.mark.parametrize(
    "guard, words",
    [
        ({"expect_resources": ["web_0"]}, "web_0, web_1, not web_0"),
        ({"expect_resources": ["web_0", "web_1", "web_2"]}, "not web_0, web_1, web_2"),
        ({"expect_resources": []}, "not nobody"),
        ({"max_resources": 1}, "2 VMs, more than 1"),
        ({"max_resources": 0}, "more than 0"),
        ({"held_by": "/etc/hold (by the night shift)"}, "by the night shift"),
        ({"held_by": ""}, "held"),
    ],
)
def test_a_guard_refuses_and_says_why(guard, words, approve, azure, directory):
    azure.add("E1")
    outcome = approve("E1", **guard)["E1"]
    assert outcome.outcome == "refused" and words in outcome.reason
    assert azure.server.posts() == []
    assert not directory.exists()


@pytest.mark.parametrize(
    "guard, words",
    [({"require_mine": True}, "does not hit web_0 but db_0"), ({"require_leader": True}, "db_0 is")],
)
def test_an_event_of_others_is_refused_where_it_has_to_be_mine(guard, words, approve, azure):
    azure.add("E1", Resources=["db_0", "db_1"])
    assert words in approve("E1", **guard)["E1"].reason
    assert azure.server.posts() == []


def test_the_second_is_hit_but_does_not_lead(approve, azure):
    azure.add("E1", Resources=["web_1", "web_0"])
    assert approve("E1", require_leader=True)["E1"].outcome == "refused"
    assert approve("E1", require_mine=True)["E1"].outcome == "approved"


def test_an_event_without_resources_has_no_leader(approve, azure):
    azure.add("E1", Resources=[])
    assert "nobody is" in approve("E1", require_leader=True)["E1"].reason
    assert approve("E1", require_mine=True)["E1"].outcome == "refused"
    assert approve("E1", expect_resources=[])["E1"].outcome == "approved"


@pytest.mark.parametrize(
    "guard",
    [
        {"expect_resources": ["WEB_1", "web_0", "web_0"]},
        {"require_mine": True},
        {"require_leader": True},
        {"max_resources": 2},
    ],
)
def test_a_guard_lets_pass_what_it_should(guard, approve, azure):
    azure.add("E1")
    assert approve("E1", **guard)["E1"].outcome == "approved"


@pytest.mark.parametrize("order", [("E1", "E2"), ("E2", "E1")])
def test_one_refused_event_keeps_all_from_being_approved(order, approve, azure, directory):
    for event_id in order:
        azure.add(event_id, Resources=["web_0"] if event_id == "E1" else ["db_0"])
    outcomes = approve("E1", "E2", require_mine=True)
    assert {event_id: outcome.outcome for event_id, outcome in outcomes.items()} == {
        "E1": "would_approve",
        "E2": "refused",
    }
    assert azure.server.posts() == []
    assert not directory.exists()


# Check mode


def test_a_dry_run_sends_and_writes_nothing_and_says_what_would_be(approve, azure, directory, tmp_path, log):
    azure.add("E1")
    azure.add("E2", EventStatus="Started")
    azure.add("E3", Resources=["db_0"])
    outcomes = approve("E1", "E2", "E4", dry_run=True)
    assert {event_id: outcome.outcome for event_id, outcome in outcomes.items()} == {
        "E1": "would_approve",
        "E2": "already_started",
        "E4": "gone",
    }
    assert approve("E3", dry_run=True, require_mine=True)["E3"].outcome == "refused"
    assert {request.method for request in azure.server.requests} == {"GET"}
    assert os.listdir(str(tmp_path)) == [] and log == []


# The journal


def test_the_approval_is_noted_with_what_was_approved(approve, azure, journal):
    azure.add("E1")
    approve("E1")
    assert journal.find("E1", "web_0").subject == Subject(
        "E1", "web_0", "Reboot", ("web_0", "web_1"), "2026-03-01T12:15:00Z"
    )


def test_an_open_entry_stays_open(approve, azure, journal):
    azure.add("E1")
    journal.begin(Subject("E1", "web_0"), "runner")
    approve("E1")
    entry = journal.find("E1", "web_0")
    assert entry.is_open and entry.phase == "approved"


def unusable(directory):
    directory.write_text("")


def untrusted(directory):
    directory.mkdir()
    os.chmod(str(directory), WRITABLE_BY_ALL)


def damaged(directory):
    directory.mkdir(mode=0o700)
    (directory / Subject("E1", "web_0").file_name).write_text("{")


def locked_up(directory):
    directory.mkdir(mode=0o700)
    (directory / ".lock").mkdir()


def probe_in_the_way(directory):
    directory.mkdir(mode=0o700)
    (directory / "probe").mkdir()


@pytest.mark.parametrize("break_it", [unusable, untrusted, damaged, locked_up, probe_in_the_way])
def test_without_a_journal_nothing_is_sent(break_it, approve, azure, directory):
    break_it(directory)
    azure.add("E1")
    with pytest.raises(JournalError):
        approve("E1")
    assert azure.server.posts() == []


def test_a_journal_that_fails_after_the_approval_is_an_error(approve, azure, directory, log):
    azure.add("E1")
    azure.on_post = lambda event_id: os.chmod(str(directory), WRITABLE_BY_ALL)
    with pytest.raises(JournalError):
        approve("E1")
    assert stat.S_IMODE(os.stat(str(directory)).st_mode) == WRITABLE_BY_ALL
    assert len(log) == 1


def test_every_approval_is_one_line_in_the_log_with_actor_and_event(approve, azure, log):
    azure.add("E1")
    azure.add("E2")
    approve("E1", "E2", "E3", missing_ok=True)
    assert [fields["event_id"] for _message, fields in log] == ["E1", "E2"]
    assert log[0][1] == {"actor": "runner", "event_id": "E1", "resources": ["web_0", "web_1"], "vm": "web_0"}


# A service that fails


def test_an_event_that_vanishes_in_between_is_gone_if_azure_refuses(approve, azure, answer, journal):
    azure.add("E1")

    def vanish(event_id):
        azure.remove(event_id)
        return answer.of(400, {"error": "unknown event"})

    azure.on_post = vanish
    assert approve("E1")["E1"].outcome == "gone"
    assert journal.find("E1", "web_0") is None


def test_an_event_that_starts_in_between_is_started_if_azure_refuses(approve, azure, answer, journal):
    azure.add("E1")

    def start(event_id):
        azure.start(event_id)
        return answer.of(400)

    azure.on_post = start
    assert approve("E1")["E1"].outcome == "already_started"
    assert journal.find("E1", "web_0") is None


@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_refused_approval_is_refused_with_azures_words(status, approve, azure, answer, journal, log):
    azure.add("E1")
    azure.on_post = lambda event_id: answer.of(status, {"error": "no way"})
    outcome = approve("E1")["E1"]
    assert outcome.outcome == "refused" and '"no way"' in outcome.reason
    assert journal.find("E1", "web_0") is None
    assert [message for message, _fields in log] == ["Could not approve event E1 (Reboot)"]


def test_one_failing_approval_does_not_hide_the_others(approve, azure, answer, journal):
    for event_id in ("E1", "E2", "E3"):
        azure.add(event_id)
    azure.on_post = lambda event_id: answer.of(400) if event_id == "E2" else None
    outcomes = approve("E1", "E2", "E3")
    assert [outcomes[event_id].outcome for event_id in ("E1", "E2", "E3")] == ["approved", "refused", "approved"]
    assert journal.find("E2", "web_0") is None


def test_an_approval_with_an_endless_answer_does_not_hide_the_others(approve, azure, answer, monkeypatch):
    monkeypatch.setattr(_client, "LARGEST_ANSWER", 1000)
    azure.add("E1")
    azure.add("E2")
    azure.on_post = lambda event_id: answer.of(200, b" " * 2000, end="close") if event_id == "E1" else None
    outcomes = approve("E1", "E2")
    assert [outcomes[event_id].outcome for event_id in ("E1", "E2")] == ["refused", "approved"]


def test_a_reset_is_tried_again(approve, azure, answer):
    azure.add("E1")
    replies = [answer(end="reset"), answer.of(503)]
    azure.on_post = lambda event_id: replies.pop(0) if replies else None
    assert approve("E1")["E1"].outcome == "approved"
    assert azure.server.approved_ids() == ["E1"] * 3


def test_a_service_that_dies_after_the_approval_has_still_approved(approve, azure, answer, journal):
    azure.add("E1")
    azure.get_answers.extend([None] + [answer.of(503)] * 50)
    outcome = approve("E1")["E1"]
    assert (outcome.outcome, outcome.start_pending) == ("approved", True)
    assert "could not be read again" in outcome.reason
    assert journal.find("E1", "web_0").approved_at is not None


def test_a_document_that_turns_unreadable_after_a_failed_approval_is_not_taken_for_gone(approve, azure, answer):
    azure.add("E1")

    def spoil(event_id):
        azure.events = [{"EventId": 7}]
        return answer.of(400)

    azure.on_post = spoil
    assert approve("E1")["E1"].outcome == "refused"


def test_a_document_that_turns_unreadable_after_the_approval_leaves_it_pending(approve, azure):
    azure.add("E1")

    def spoil(event_id):
        azure.events = [{"EventId": 7}]

    azure.on_post = spoil
    outcome = approve("E1")["E1"]
    assert (outcome.outcome, outcome.start_pending) == ("approved", True)


def test_a_missing_event_is_not_called_gone_when_the_document_has_unreadable_parts(approve, azure):
    azure.add("E1")
    azure.raw = [{"EventId": None}]
    assert approve("E1")["E1"].outcome == "approved"
    with pytest.raises(DocumentError) as caught:
        approve("E2")
    assert "E2" in str(caught.value) and "cannot be said" in str(caught.value)
    assert azure.server.approved_ids() == ["E1"]


def test_a_service_that_cannot_be_read_is_an_error_and_nothing_is_sent(approve, azure, answer):
    azure.get_answers.extend([answer.of(500)] * 50)
    with pytest.raises(ServiceError):
        approve("E1")
    assert azure.server.posts() == []


def test_a_service_that_is_not_there_is_an_error(journal, server, clock):
    server.stop()
    client = MetadataClient(server.url, clock=clock.monotonic, sleep=clock.sleep)
    with pytest.raises(NotAzureError):
        Approver(client, journal, "web_0", "a").approve(ALL, Guard(), False)


def test_resources_that_change_just_before_are_noticed(approve, azure):
    azure.add("E1")
    assert approve("E1", dry_run=True, expect_resources=["web_0", "web_1"])["E1"].outcome == "would_approve"
    azure.events[0]["Resources"] = ["web_0", "web_1", "web_2"]
    assert approve("E1", expect_resources=["web_0", "web_1"])["E1"].outcome == "refused"
    assert azure.server.posts() == []
