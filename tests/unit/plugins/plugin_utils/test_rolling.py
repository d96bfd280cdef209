# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rolling run decides between its tasks, from real plans. Rules are those of the design, by number."""

import copy
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.azops.maintenance.plugins.module_utils._document import parse_time
from ansible_collections.azops.maintenance.plugins.module_utils._errors import InputError
from ansible_collections.azops.maintenance.plugins.plugin_utils import _rolling as rolling
from ansible_collections.azops.maintenance.tests.unit.plugins.fleets import (
    FOUR,
    UNREACHABLE,
    answer,
    at,
    entry,
    event,
    fleet,
    make,
    the_event,
)

LONGEST_WAIT = 1800
WATCHER = "azops-watcher"


def noted(answers, event_id="E1", hosts=None, phase="drained"):
    """The same answers with this phase in the journals of these hosts, of all by default."""
    after = copy.deepcopy(answers)
    for host in after if hosts is None else hosts:
        after[host]["journal"]["entries"].append(entry(event_id, after[host]["vm"]["name"], phase))
    return after


def gate(made, answers, blocked=None, tried=(), hosts=None):
    first_step = made["batches"][0]["hosts"] if hosts is None else hosts
    return rolling.approval_gate(made, first_step, answers, blocked or {}, tried)


def decision(made, answers, **more):
    (only,) = gate(made, answers, **more)
    return only


def tried_by(host, event_id="E1"):
    return {"event_id": event_id, "approver": host}


def work(made, host, said, seconds=0, blocked=None):
    return rolling.batch_work(made, host, said, parse_time(at(seconds)), blocked or {})


def still_open(made, host, said, seconds=0):
    return rolling.open_work(made, host, said, parse_time(at(seconds)))


# The approval gate: rules 1, 2, 5, 6 and 8


PAIR = fleet({"a": "0", "b": "0", "c": "1"}, event("E1", "a", "b"))


def test_an_event_is_approved_by_its_leader_when_every_vm_is_drained():
    found = decision(make(PAIR), noted(PAIR, hosts="ab"))
    assert (found.approve, found.approver, found.is_trouble) == (True, "a", False)
    assert found.why == the_event(make(PAIR))["why"]


def test_the_leader_is_the_first_in_resources_and_not_the_first_in_the_inventory():
    answers = fleet({"a": "0", "b": "0"}, event("E1", "b", "a"))
    assert decision(make(answers), noted(answers)).approver == "b"


def test_the_next_one_approves_if_the_leader_could_not():
    found = decision(make(PAIR), noted(PAIR, hosts="ab"), tried=[tried_by("a")])
    assert (found.approve, found.approver) == (True, "b")


def test_what_was_tried_for_another_event_does_not_count():
    assert decision(make(PAIR), noted(PAIR, hosts="ab"), tried=[tried_by("a", "E2")]).approver == "a"


def test_when_all_have_tried_nobody_approves_and_that_is_trouble():
    found = decision(make(PAIR), noted(PAIR, hosts="ab"), tried=[tried_by("b"), tried_by("a")])
    assert (found.approve, found.approver, found.is_trouble) == (False, None, True)


def test_an_event_that_needs_no_drain_is_approved_without_a_journal():
    answers = fleet({"a": "0", "b": "0"}, event("E1", "a", "b", kind="Freeze", duration=5))
    assert decision(make(answers), answers).approve


def test_an_event_that_needs_no_drain_still_needs_every_answer():
    answers = fleet({"a": "0", "b": "0"}, event("E1", "a", "b", kind="Freeze", duration=5))
    found = decision(make(answers), dict(answers, b=UNREACHABLE))
    assert (found.approve, found.is_trouble) == (False, True)


def test_an_event_that_policy_only_drains_for_is_not_approved_and_that_is_no_trouble():
    answers = fleet({"a": "0"}, event("E1", "a", kind="Preempt"))
    found = decision(make(answers), noted(answers))
    assert (found.approve, found.is_trouble) == (False, False)


def test_an_event_that_one_vm_saw_started_is_not_approved_and_that_is_no_trouble():
    made = make(PAIR)
    answers = noted(PAIR, hosts="ab")
    answers["b"]["events"][0]["event_status"] = "Started"
    found = decision(made, answers)
    assert (found.approve, found.is_trouble) == (False, False)
    assert "started" in found.why


def test_an_event_that_nobody_sees_any_more_is_not_approved_and_that_is_no_trouble():
    made = make(PAIR)
    gone = noted(fleet({"a": "0", "b": "0"}), hosts="ab")
    found = decision(made, gone)
    assert (found.approve, found.is_trouble) == (False, False)
    assert "gone" in found.why


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda b: None, "b does not answer"),
        (lambda b: UNREACHABLE, "b does not answer"),
        (lambda b: {"failed": True, "msg": "no python"}, "b does not answer"),
        (lambda b: dict(b, vm=dict(b["vm"], name="x")), "b is another VM now, x"),
        (lambda b: dict(b, held_by="/etc/hold"), "b is held by /etc/hold"),
        (lambda b: dict(b, events=[]), "b does not see the event"),
        (lambda b: dict(b, events=[dict(b["events"][0], event_status="Pondered")]), "its status is Pondered"),
        (lambda b: dict(b, events=[dict(b["events"][0], resources=["a", "b", "x"])]), "it hits a, b, x now"),
        (lambda b: dict(b, events=[dict(b["events"][0], resources=["b"])]), "it hits b now, not a, b"),
        (lambda b: dict(b, journal=None, journal_error="not root"), "the journal of b cannot be read: not root"),
        (lambda b: dict(b, journal=None), "the journal of b cannot be read: no reason given"),
        (lambda b: dict(b, journal={"entries": [], "damaged": []}), "b is not drained"),
        (lambda b: noted({"b": answer("b", *b["events"])}, phase="draining")["b"], "its journal says draining"),
        (lambda b: noted({"b": answer("b", *b["events"])}, phase="drain_failed")["b"], "its journal says drain_failed"),
        (lambda b: noted({"b": answer("b", *b["events"])}, phase="restoring")["b"], "its journal says restoring"),
        (lambda b: noted({"b": answer("b", *b["events"])}, phase="closed")["b"], "b is not drained"),
        (lambda b: noted({"b": answer("b", *b["events"])}, "E2")["b"], "b is not drained"),
        (lambda b: answer("b", *b["events"], entries=[entry("E1", "a")]), "b is not drained"),
    ],
)
def test_one_vm_is_enough_to_stop_the_approval_and_is_named(change, words):
    answers = noted(PAIR, hosts="ab")
    answers["b"] = change(answers["b"])
    found = decision(make(PAIR), answers)
    assert (found.approve, found.approver, found.is_trouble) == (False, None, True)
    assert words in found.why


def test_a_vm_whose_answer_is_missing_altogether_stops_the_approval():
    answers = noted(PAIR, hosts="ab")
    del answers["b"]
    assert decision(make(PAIR), answers).why == "b does not answer"


def test_nothing_is_approved_if_nobody_answers():
    found = decision(make(PAIR), {})
    assert (found.approve, found.is_trouble) == (False, True)


def test_a_vm_that_the_play_does_not_reach_stops_the_approval_also_if_the_plan_says_approve():
    answers = fleet({"a": "0"}, event("E1", "a", "x"))
    made = make(answers)
    the_event(made).update(approve=True)
    found = decision(made, noted(answers))
    assert (found.approve, found.why) == (False, "not reached: x")


def test_an_unmanaged_event_is_approved_if_the_user_said_so_and_those_that_are_known_are_drained():
    answers = fleet({"a": "0"}, event("E1", "a", "x"))
    made = make(answers, approve_unmanaged=True)
    assert decision(made, noted(answers)).approve
    assert not decision(made, answers).approve


def test_a_host_of_another_domain_that_is_out_stops_the_approval():
    answers = fleet(FOUR, event("E1", "a"))
    answers["b"]["journal"]["entries"] = [entry("E0", "b")]
    found = decision(make(answers), noted(answers, hosts="a"))
    assert (found.approve, found.is_trouble) == (False, False)
    assert "b of another domain is out of service: drained for event E0" in found.why


def test_a_host_of_the_same_domain_that_is_out_does_not():
    answers = fleet(FOUR, event("E1", "a"))
    answers["d"]["journal"]["entries"] = [entry("E0", "d")]
    assert decision(make(answers), noted(answers, hosts="a")).approve


def test_each_event_of_a_batch_is_decided_by_itself():
    answers = fleet(FOUR, event("E1", "a"), event("E2", "d"), event("E3", "b"))
    found = gate(make(answers), noted(noted(answers, "E1", "a"), "E3", "b"))
    assert [(one.event_id, one.approve) for one in found] == [("E1", True), ("E2", False)]


def test_a_vm_that_two_events_hit_has_to_be_drained_for_both():
    answers = fleet({"a": "0"}, event("E1", "a"), event("E2", "a"))
    found = gate(make(answers), noted(answers, "E2"))
    assert [(one.event_id, one.approve) for one in found] == [("E1", False), ("E2", True)]


def test_a_vm_under_two_names_is_asked_under_both_and_may_approve_under_both():
    both = {"a": answer("web_0", event("E1", "web_0")), "b": answer("web_0", event("E1", "web_0"))}
    made = make(both)
    assert decision(made, noted(both)).approver == "a"
    assert decision(made, noted(both), tried=[tried_by("a")]).approver == "b"
    assert not decision(made, dict(noted(both), b=UNREACHABLE)).approve


def test_a_name_that_stands_twice_in_resources_is_one_vm():
    answers = fleet({"a": "0", "b": "0"}, event("E1", "a", "b", "A"))
    made = make(answers)
    assert the_event(made)["resources"] == ["a", "b"]
    assert decision(made, noted(answers)).approve


def test_hosts_that_have_no_batch_have_nothing_to_be_approved():
    answers = fleet(FOUR, event("E1", "a"))
    assert gate(make(answers), noted(answers), hosts=["c"]) == []


STATES = {
    "drained": True,
    "approved": True,
    "draining": False,
    "drain_failed": False,
    "restore_failed": False,
    "closed": False,
    "not in the journal": False,
    "journal unreadable": False,
    "silent": False,
    "unreachable": False,
    "held": False,
    "another VM": False,
    "sees nothing": False,
    "started": False,
    "hits more": False,
    "hits fewer": False,
    "unknown status": False,
}


def in_state(state, before):
    """What a host answers in such a state, given what it answered for the plan."""
    name, events = before["vm"]["name"], before["events"]
    if state in ("silent", "unreachable"):
        return None if state == "silent" else UNREACHABLE
    live = [dict(one) for one in events]
    if state == "sees nothing":
        live = []
    for one in live:
        one["event_status"] = {"started": "Started", "unknown status": "?"}.get(state, "Scheduled")
        if state == "hits more":
            one["resources"] = [*one["resources"], "one_more"]
        if state == "hits fewer":
            one["resources"] = one["resources"][1:]
    phase = state if state in ("draining", "drain_failed", "restore_failed", "closed", "approved") else "drained"
    entries = [] if state == "not in the journal" else [entry(one["event_id"], name, phase) for one in events]
    found = answer(name, *live, entries=entries)
    if state == "held":
        found["held_by"] = "/hold"
    if state == "journal unreadable":
        found.update(journal=None, journal_error="damaged")
    if state == "another VM":
        found["vm"]["name"] = "somebody_else"
    return found


def in_other_case(said, flip):
    """The same answer as another VM, or the same one later, may spell it."""
    if not flip or not said or "vm" not in said:
        return said
    after = copy.deepcopy(said)
    after["vm"]["name"] = after["vm"]["name"].swapcase()
    for one in after["events"]:
        one.update(event_id=one["event_id"].swapcase(), resources=[name.swapcase() for name in one["resources"]])
    for one in after["journal"]["entries"] if after["journal"] else []:
        one.update(event_id=one["event_id"].swapcase(), vm=one["vm"].swapcase())
    return after


@st.composite
def moments(draw, states=tuple(STATES)):
    """A plan for one event, and what each of its VMs says just before the approval."""
    names = ["vm{0}".format(number) for number in range(draw(st.integers(1, 5)))]
    hit = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    kind, duration = draw(st.sampled_from([("Reboot", None), ("Redeploy", None), ("Freeze", 60), ("Freeze", None)]))
    answers = fleet(dict.fromkeys(names, "0"), event("E-1", *hit, kind=kind, duration=duration))
    said = {name: draw(st.sampled_from(states)) for name in hit}
    fresh = {name: in_other_case(in_state(said[name], answers[name]), draw(st.booleans())) for name in hit}
    return answers, hit, said, fresh


holds_always = settings(max_examples=60, deadline=None)


@holds_always
@given(moments())
def test_it_approves_exactly_if_every_vm_in_resources_says_that_it_is_drained(moment):
    answers, _hit, said, fresh = moment
    found = decision(make(answers), fresh)
    assert found.approve == all(STATES[state] for state in said.values())
    assert found.why
    assert (found.approver is not None) == found.approve


@holds_always
@given(moments(states=("drained", "approved")), st.data())
def test_it_never_approves_while_a_vm_is_missing(moment, data):
    answers, hit, _said, fresh = moment
    del fresh[data.draw(st.sampled_from(hit))]
    assert not decision(make(answers), fresh).approve


@holds_always
@given(moments(states=("drained", "approved")))
def test_it_never_approves_in_a_scope_where_something_went_wrong(moment):
    answers, hit, _said, fresh = moment
    made = make(answers)
    troubles = rolling.batch_troubles(made, hit, hit, {hit[-1]: "its drain failed"}, {})
    found = decision(made, fresh, blocked=troubles["blocked"])
    assert (found.approve, found.is_trouble) == (False, False)
    assert "its drain failed" in found.why


@holds_always
@given(moments(states=("drained", "approved")), st.sampled_from(["drained", "drain_failed", "restore_failed"]))
def test_it_never_approves_while_another_domain_is_out(moment, phase):
    answers, hit, _said, fresh = moment
    answers["z"] = answer("z", *answers[hit[0]]["events"], domain="1", entries=[entry("E0", "z", phase)])
    found = decision(make(answers), fresh)
    assert (found.approve, found.is_trouble) == (False, False)


@holds_always
@given(moments(states=("drained", "approved")), st.data())
def test_the_approver_is_the_first_in_resources_that_has_not_tried(moment, data):
    answers, hit, _said, fresh = moment
    tried = data.draw(st.lists(st.sampled_from(hit), unique=True))
    found = decision(make(answers), fresh, tried=[tried_by(host, "e-1") for host in tried])
    left = [host for host in hit if host not in tried]
    assert found.approver == (left[0] if left else None)
    assert found.approve == bool(left)


@holds_always
@given(moments(), st.sampled_from([{}, {"x": "y"}]))
def test_the_gate_changes_nothing_that_it_was_given(moment, blocked):
    answers, _hit, _said, fresh = moment
    made = make(answers)
    before = copy.deepcopy((made, fresh, blocked))
    gate(made, fresh, blocked=blocked)
    assert (made, fresh, blocked) == before


@pytest.mark.parametrize(
    "outcomes, left",
    [
        ([], ["E1"]),
        ([{"event_id": "e1", "outcome": "approved"}], []),
        ([{"event_id": "E1", "outcome": "already_approved"}], []),
        ([{"event_id": "E1", "outcome": "already_started"}], []),
        ([{"event_id": "E1", "outcome": "gone"}], []),
        ([{"event_id": "E1", "outcome": "refused"}], ["E1"]),
        ([{"event_id": "E1", "outcome": "would_approve"}], ["E1"]),
        ([{"event_id": "E2", "outcome": "approved"}], ["E1"]),
    ],
)
def test_an_approval_that_came_to_nothing_is_left_to_the_next_vm(outcomes, left):
    decisions = [{"event_id": "E1", "approve": True}, {"event_id": "E3", "approve": False}]
    attempts = [{"results": outcomes, "decision": decisions[0]}] if outcomes else []
    assert [one["event_id"] for one in rolling.not_approved(decisions, attempts)] == left


@pytest.mark.parametrize(
    "attempt, is_lost",
    [
        ({"unreachable": True, "msg": "Shared connection to a closed."}, True),
        ({"failed": True, "module_stdout": ""}, True),
        ({"failed": True, "error_kind": "not_azure"}, False),
        ({"failed": True, "results": [{"event_id": "E1", "outcome": "refused"}]}, False),
    ],
)
def test_a_vm_that_went_away_before_it_answered_may_have_approved(attempt, is_lost):
    (one,) = rolling.not_approved([{"event_id": "E1", "approve": True}], [dict(attempt, decision={"event_id": "E1"})])
    assert one["is_lost"] is is_lost


def test_an_approver_that_was_lost_and_is_still_away_is_waited_for_and_no_trouble():
    made = make(fleet(FOUR, event("E1", "a", "d")))
    drained = {"a": answer("a", event("E1", "a", "d"), entries=[entry("E1", "a")])}
    said = decision(made, {"d": drained["a"]}, tried=[dict(tried_by("a"), is_lost=True)])
    assert (said.approve, said.is_trouble) == (False, False)
    assert "a was lost while it approved" in said.why


# The lease


VOTE = {"lease_held": True, "lease": {"run_id": "ours"}}
OTHERS = {
    "lease_held": False,
    "lease": {"run_id": "theirs", "controller": "ops2", "pid": 7, "expires_at": at(60), "scope": "s"},
}
NO_VOTE = {"unreachable": True, "msg": "away"}


def verdict_of(*votes, scope="s"):
    leases = [{"scope": scope, "host": "h{0}".format(number)} for number in range(len(votes))]
    return rolling.lease_verdict(leases, votes)


@pytest.mark.parametrize("votes", [[VOTE], [VOTE, VOTE], [VOTE, VOTE, NO_VOTE], [VOTE, NO_VOTE, VOTE]])
def test_more_than_half_of_the_votes_are_a_lease(votes):
    assert verdict_of(*votes) == {}


@pytest.mark.parametrize("votes", [[NO_VOTE], [VOTE, NO_VOTE], [VOTE, NO_VOTE, NO_VOTE], [{"failed": True}]])
def test_half_of_the_votes_or_fewer_are_none(votes):
    assert "s" in verdict_of(*votes)


def test_too_few_votes_are_not_another_run_and_the_host_that_is_missing_is_named():
    missing = verdict_of(VOTE, NO_VOTE)["s"]
    assert not missing["by_other"]
    assert "h1: away" in missing["why"]


def test_a_host_that_is_asked_twice_has_one_vote():
    leases = [{"scope": "s", "host": host} for host in ("a", "b", "a")]
    assert "only 1 of 2" in rolling.lease_verdict(leases, [VOTE, NO_VOTE, VOTE])["s"]["why"]


def test_two_runs_that_each_reach_half_of_a_scope_do_not_both_get_it():
    leases = [{"scope": "s", "host": "a"}, {"scope": "s", "host": "b"}]
    for votes, own in (([VOTE, NO_VOTE], "c"), ([NO_VOTE, VOTE], "d")):
        asked = [*leases, {"scope": "s", "host": own, "has_vote": False}]
        assert "s" in rolling.lease_verdict(asked, [*votes, VOTE])


def test_a_host_without_a_vote_is_heard_if_another_run_has_it():
    leases = [{"scope": "s", "host": "a"}, {"scope": "s", "host": "b", "has_vote": False}]
    assert rolling.lease_verdict(leases, [VOTE, OTHERS])["s"]["by_other"]
    assert rolling.lease_verdict(leases, [VOTE, NO_VOTE]) == {}


def test_scopes_are_judged_each_by_itself():
    leases = [{"scope": scope, "host": scope} for scope in ("s", "t", "u")]
    assert list(rolling.lease_verdict(leases, [VOTE, OTHERS, NO_VOTE])) == ["t", "u"]


@pytest.mark.parametrize(
    "domains, hosts",
    [
        ({"a": "0"}, ["a"]),
        ({"a": "0", "b": "1"}, ["a", "b"]),
        ({"a": "0", "b": "0", "c": "0", "d": "0"}, ["a", "b", "c"]),
        ({"a": "0", "b": "0", "c": "0", "d": "1"}, ["a", "b", "d"]),
        ({"a": "0", "b": "0", "c": "1", "d": "2", "e": "3"}, ["a", "c", "d"]),
    ],
)
def test_the_lease_of_a_scope_is_with_up_to_three_hosts_of_different_domains_where_there_are(domains, hosts):
    (scope,) = make(fleet(domains, event("E1", "a")))["scopes"]
    assert [lease["host"] for lease in scope["leases"]] == hosts
    assert {lease["scope"] for lease in scope["leases"]} == {scope["scope"]}


def test_the_loss_of_one_host_of_three_in_a_single_domain_does_not_lose_the_lease():
    (scope,) = make(fleet(dict.fromkeys("abcd", "0"), event("E1", "a")))["scopes"]
    assert rolling.lease_verdict(scope["leases"], [NO_VOTE, VOTE, VOTE]) == {}


def test_a_single_vote_of_another_run_is_enough_and_it_is_named():
    missing = verdict_of(VOTE, VOTE, OTHERS)["s"]
    assert missing["by_other"]
    why = missing["why"]
    for words in ("theirs", "ops2", "process 7", at(60), "maintenance_takeover=true"):
        assert words in why


# What a host does in its batch


def test_a_host_drains_for_the_events_that_are_still_scheduled():
    answers = fleet({"a": "0"}, event("E1", "a"), event("E2", "a", status="Scheduled", left=950))
    made = make(answers)
    fresh = answer("a", event("e2", "A"))
    found = work(made, "a", fresh)
    assert found["drain"]
    assert [one["event_id"] for one in found["drained_for"]] == ["E2"]
    assert [one["event_id"] for one in found["events"]] == ["E1", "E2"]
    assert not found["is_over"]


def test_a_host_whose_events_are_gone_or_started_is_not_drained():
    made = make(fleet({"a": "0"}, event("E1", "a")))
    gone = work(made, "a", answer("a"))
    started = work(made, "a", answer("a", event("E1", "a", status="Started", left=None)))
    assert (gone["drain"], gone["is_over"]) == (False, True)
    assert (started["drain"], started["is_over"]) == (False, False)


def test_what_is_journalled_is_what_the_journal_takes():
    answers = fleet({"a": "0"}, event("E1", "a", left=None))
    (only,) = work(make(answers), "a", answers["a"])["drained_for"]
    assert only == {"event_id": "E1", "event_type": "Reboot", "resources": ["a"], "not_before": None}


@pytest.mark.parametrize("passed, budget", [(0, 120), (800, 100), (894, 6), (899, 5), (2000, 5)])
def test_a_drain_may_take_its_timeout_but_not_longer_than_until_azure_starts(passed, budget):
    answers = fleet({"a": "0"}, event("E1", "a", left=900))
    assert work(make(answers), "a", answers["a"], passed)["drain_seconds"] == budget


def test_the_earliest_deadline_of_a_hosts_events_counts():
    answers = fleet({"a": "0"}, event("E1", "a", left=900), event("E2", "a", left=300), event("E3", "a", left=None))
    assert work(make(answers), "a", answers["a"], 250)["drain_seconds"] == 50


def test_a_drain_without_a_deadline_has_its_timeout():
    answers = fleet({"a": "0"}, event("E1", "a", left=None))
    found = work(make(answers), "a", answers["a"])
    assert (found["drain_seconds"], found["start_in"], found["seconds_to_start"]) == (120, 0, 0)


def test_a_batch_that_is_to_be_approved_starts_at_once():
    answers = fleet({"a": "0"}, event("E1", "a", left=900))
    found = work(make(answers), "a", answers["a"])
    assert (found["start_in"], found["seconds_to_start"]) == (0, 720)


def test_a_batch_in_which_nothing_is_approved_starts_when_it_must():
    unmanaged = fleet({"a": "0"}, event("E1", "a", "x", left=900))
    assert work(make(unmanaged), "a", unmanaged["a"], 100)["start_in"] == 620
    assert work(make(unmanaged), "a", unmanaged["a"], 800)["start_in"] == 0


def test_a_batch_of_a_blocked_scope_starts_when_it_must_and_is_drained_all_the_same():
    answers = fleet({"a": "0", "b": "1"}, event("E1", "a"), event("E2", "b", left=1200))
    made = make(answers)
    blocked = rolling.batch_troubles(made, ["a"], ["a"], {"a": "its drain failed"}, {})["blocked"]
    found = work(made, "b", answers["b"], 100, blocked)
    assert (found["drain"], found["start_in"]) == (True, 920)
    assert work(made, "b", answers["b"], 1100, blocked)["start_in"] == 0


@pytest.mark.parametrize("kind, comes_back", [("Reboot", True), ("Preempt", False), ("Terminate", False), ("X", True)])
def test_a_vm_that_azure_takes_away_does_not_come_back(kind, comes_back):
    answers = fleet({"a": "0"}, event("E1", "a", kind=kind))
    assert work(make(answers), "a", answers["a"])["comes_back"] is comes_back


def test_witnesses_see_all_events_of_the_host():
    answers = fleet(FOUR, event("E1", "a"), event("E2", "a"))
    answers["c"]["events"].pop()
    assert work(make(answers), "a", answers["a"])["witnesses"] == ["b", "d"]


def test_a_host_waits_no_longer_than_until_the_next_step_must_start():
    answers = fleet({"a": "0", "b": "1"}, event("E1", "a"), event("E2", "b"))
    made = make(answers)
    assert made["batches"][1]["must_start_by"] == at(720)
    assert work(made, "a", answers["a"], 20)["wait_seconds"] == 700
    assert work(made, "a", answers["a"], 900)["wait_seconds"] == 1


def test_the_last_batch_waits_as_long_as_the_user_allows():
    answers = fleet({"a": "0"}, event("E1", "a", kind="Freeze", duration=60))
    assert work(make(answers, longest_wait=77), "a", answers["a"])["wait_seconds"] >= 77


def test_for_an_event_that_nobody_approves_the_limit_counts_from_its_own_time_on():
    unmanaged = fleet({"a": "0"}, event("E1", "a", "x", left=900))
    assert work(make(unmanaged), "a", unmanaged["a"], 100)["wait_seconds"] == 800 + LONGEST_WAIT


def test_an_event_that_is_approved_is_waited_for_no_longer_than_the_user_allows_however_late_its_deadline():
    answers = fleet({"a": "0"}, event("E1", "a", left=5 * 86400))
    assert work(make(answers), "a", answers["a"])["wait_seconds"] == LONGEST_WAIT


def test_an_event_that_is_not_approved_because_its_scope_is_blocked_is_waited_for_from_its_own_time_on():
    answers = fleet({"a": "0"}, event("E1", "a"))
    assert work(make(answers), "a", answers["a"], blocked={"a": "why"})["wait_seconds"] == 900 + LONGEST_WAIT


def test_a_blocked_batch_that_need_not_start_for_days_is_left_to_a_later_run():
    answers = fleet({"a": "0"}, event("E1", "a", left=5 * 86400))
    found = work(make(answers), "a", answers["a"], blocked={"a": "its drain failed"})
    assert (found["is_for_later"], found["drain"], found["start_in"], found["wait_seconds"]) == (True, False, 0, 1)


def test_an_event_that_may_come_at_any_moment_is_drained_for_at_once_also_if_nobody_approves_it():
    answers = fleet({"a": "0", "d": "0"}, event("E1", "a", "x", left=None), event("E2", "d", "y"))
    made = make(answers)
    assert [batch["is_for_later"] for batch in made["batches"]] == [False]
    assert made["steps"][0]["hosts"] == ["a", "d"]
    assert work(made, "a", answers["a"])["start_in"] == 0
    alone = make({"a": answer("a", event("E1", "a", "x", left=None))})
    assert alone["steps"][0]["hosts"] == ["a"]


@pytest.mark.parametrize("said", [None, UNREACHABLE, {"failed": True, "msg": "503"}])
def test_a_host_that_does_not_say_what_it_sees_is_drained_by_what_was_planned(said):
    made = make(fleet({"a": "0"}, event("E1", "a")))
    found = work(made, "a", said)
    assert (found["drain"], found["is_over"]) == (True, False)
    assert [one["event_id"] for one in found["drained_for"]] == ["E1"]


def test_an_event_whose_status_is_not_known_is_drained_for():
    answers = fleet({"a": "0"}, event("E1", "a", status="Pondered"))
    assert work(make(answers), "a", answers["a"], 800)["drain"]


def test_the_work_of_a_thousand_hosts_with_a_thousand_events_is_done_in_no_time():
    names = ["vm{0:04}".format(number) for number in range(1000)]
    events = {name: event("E" + name, name, left=300000) for name in names}
    answers = {name: answer(name, events[name], entries=[entry("old", name)]) for name in names}
    made = make(answers)
    assert len(made["batches"]) == 1000
    blocked = dict.fromkeys(names, "why")
    leases = [lease for scope in made["scopes"] for lease in scope["leases"]]
    before = time.process_time()
    for name in names:
        work(made, name, answers[name])
        still_open(made, name, answers[name])
    for name in names[:10]:
        rolling.lease_verdict(leases, [VOTE] * len(leases))
        gate(made, answers, blocked=blocked, hosts=[name])
    rolling.batch_troubles(made, names, names, dict.fromkeys(names, "failed"), {})
    rolling.batch_troubles(made, names, [], {}, {})
    assert time.process_time() - before < 10


# What is open from before


def test_what_a_run_that_was_killed_left_is_waited_for_and_restored():
    answers = {"a": answer("a", entries=[entry("E0", "A"), entry("old", "a", "closed"), entry("E0", "other")])}
    found = still_open(make(answers), "a", answers["a"])
    assert [one["event_id"] for one in found["restore"]] == ["E0"]
    assert [one["event_id"] for one in found["events"]] == ["E0"]
    assert found["vm"] == "a"
    assert found["restore"][0] == {
        "event_id": "E0",
        "event_type": "Reboot",
        "resources": ["A"],
        "not_before": at(900),
    }


def test_what_azure_has_started_is_waited_for_but_there_is_nothing_to_restore():
    answers = fleet({"a": "0", "b": "0"}, event("E1", "a", status="Started", left=None))
    found = still_open(make(answers), "a", answers["a"])
    assert ([one["event_id"] for one in found["events"]], found["restore"]) == (["E1"], [])
    assert found["witnesses"] == ["b"]
    assert still_open(make(answers), "b", answers["b"])["events"] == []


def test_what_is_part_of_a_batch_is_left_to_the_batch():
    answers = fleet({"a": "0"}, event("E1", "a"), entries=[entry("e1", "a")])
    assert still_open(make(answers), "a", answers["a"])["events"] == []


def test_what_a_watcher_drained_is_left_to_the_watcher():
    answers = {"a": answer("a", entries=[entry("E0", "a", actor=WATCHER)])}
    found = still_open(make(answers), "a", answers["a"])
    assert (found["events"], found["restore"]) == ([], [])


def test_the_one_that_opened_an_entry_last_is_the_one_that_drained():
    again = entry("E0", "a", actor=WATCHER)
    again["steps"] += [
        {"phase": "closed", "at": at(60), "actor": WATCHER},
        {"phase": "draining", "at": at(120), "actor": "ansible"},
    ]
    answers = {"a": answer("a", entries=[again])}
    assert len(still_open(make(answers), "a", answers["a"])["restore"]) == 1


@pytest.mark.parametrize("said", [None, {}, UNREACHABLE, "nonsense"])
def test_a_host_that_does_not_answer_has_no_open_work(said):
    found = still_open(make({"a": answer("a")}), "a", said)
    assert (found["events"], found["restore"], found["vm"]) == ([], [], None)


def test_a_host_that_is_not_in_the_plan_has_no_open_work():
    assert still_open(make({}), "a", answer("a", entries=[entry("E0", "a")]))["events"] == []


def test_open_work_is_waited_for_until_the_first_batch_must_start():
    answers = fleet({"a": "0", "b": "1"}, event("E1", "b"))
    answers["a"]["journal"]["entries"] = [entry("E0", "a")]
    made = make(answers)
    assert still_open(made, "a", answers["a"], 20)["wait_seconds"] == 700
    assert still_open(made, "a", answers["a"], 900)["wait_seconds"] == 1


def test_open_work_for_an_event_that_is_days_away_is_not_waited_for():
    answers = fleet({"a": "0"}, event("E1", "a", left=5 * 86400), entries=[entry("E1", "a")])
    made = make(answers, variables={"a": {"policy": [{"action": "ignore"}]}})
    found = still_open(made, "a", answers["a"])
    assert ([one["event_id"] for one in found["restore"]], found["wait_seconds"]) == (["E1"], 1)


@pytest.mark.parametrize("kind, comes_back", [("Reboot", True), ("Terminate", False), ("Preempt", False)])
def test_open_work_knows_that_a_vm_does_not_come_back(kind, comes_back):
    started = event("E1", "a", kind=kind, status="Started", left=None)
    answers = fleet({"a": "0"}, started, entries=[entry("E1", "a", kind=kind)])
    assert still_open(make(answers), "a", answers["a"])["comes_back"] is comes_back


def test_a_journal_that_cannot_be_read_has_no_open_entries():
    assert rolling.own_open_entries(answer("a", journal=None)) == []


def test_the_undo_takes_what_is_open_for_the_vm_itself_and_not_what_its_watcher_drained():
    entries = [
        entry("E1", "web_0"),
        entry("E2", "WEB_0", actor=WATCHER),
        entry("E3", "web_1"),
        entry("E4", "web_0", "closed"),
    ]
    found = rolling.open_entries(entries, "Web_0")
    assert (found["vm"], [one["event_id"] for one in found["restore"]]) == ("Web_0", ["E1"])


def test_the_undo_of_a_vm_that_does_not_say_who_it_is_takes_the_only_one_that_its_journal_knows():
    found = rolling.open_entries([entry("E1", "web_0"), entry("E2", "WEB_0")], None)
    assert (found["vm"], len(found["restore"])) == ("WEB_0", 2)
    with pytest.raises(InputError, match="web_0, lb_0"):
        rolling.open_entries([entry("E1", "web_0"), entry("E2", "lb_0")], None)
    assert rolling.open_entries([], None) == {"vm": None, "restore": []}


# What went wrong


def test_a_failure_is_trouble_and_blocks_its_scope_only():
    answers = {**fleet({"a": "0", "b": "1"}, event("E1", "a")), **fleet({"x": "0"}, event("E2", "x", left=950))}
    made = make(answers)
    found = rolling.batch_troubles(made, ["a"], ["a"], {"a": "its drain failed"}, {"a": ""})
    assert found["troubles"] == [{"host": "a", "why": "its drain failed"}]
    assert decision(made, noted(answers, "E2", "x"), hosts=["x"], blocked=found["blocked"]).approve
    assert not decision(made, noted(answers, "E1", "a"), hosts=["a"], blocked=found["blocked"]).approve


def test_a_host_that_left_the_play_is_trouble():
    answers = fleet({"a": "0"}, event("E1", "a"))
    found = rolling.batch_troubles(make(answers), ["a"], [], {}, {})
    assert [one["host"] for one in found["troubles"]] == ["a"]
    assert found["blocked"]


def test_a_host_that_left_the_play_is_named_with_its_event_and_what_to_do():
    answers = fleet({"a": "0"}, event("E1", "a"))
    (trouble,) = rolling.batch_troubles(make(answers), ["a"], [], {}, {})["troubles"]
    for words in ("event E1", "reach it", "run this again"):
        assert words in trouble["why"]


def test_what_is_blocked_stays_blocked_when_a_lost_host_changes_the_name_of_the_scope():
    first = fleet({"a": "0", "b": "1", "c": "2"}, event("E1", "a"))
    blocked = rolling.batch_troubles(make(first), ["a"], ["a"], {"a": "it is lost"}, {})["blocked"]
    second = dict(fleet({"b": "1", "c": "2"}, event("E2", "b")), a=UNREACHABLE)
    made = make(second)
    assert made["hosts"]["b"]["scope"] != make(first)["hosts"]["b"]["scope"]
    found = decision(made, noted(second, "E2", "b"), blocked=blocked)
    assert (found.approve, found.is_trouble) == (False, False)
    assert "a: it is lost" in found.why


def test_a_host_that_is_not_back_yet_blocks_its_scope_but_is_no_trouble():
    answers = fleet({"a": "0", "b": "1"}, event("E1", "a"), event("E2", "b"))
    made = make(answers)
    found = rolling.batch_troubles(made, ["a"], ["a"], {"a": ""}, {"a": "event E1 is not over yet"})
    assert found["troubles"] == []
    refused = decision(made, noted(answers, "E2", "b"), hosts=["b"], blocked=found["blocked"])
    assert "a: event E1 is not over yet" in refused.why


def test_where_all_went_well_nothing_is_blocked():
    made = make(fleet({"a": "0"}, event("E1", "a")))
    assert rolling.batch_troubles(made, ["a"], ["a"], {"a": ""}, {"a": ""}) == {"troubles": [], "blocked": {}}


# The end


def test_a_fleet_with_nothing_open_and_nothing_announced_has_converged():
    assert rolling.verdict(make(fleet(FOUR)), [], []) == {"converged": True, "left": [], "lost": []}


@pytest.mark.parametrize(
    "answers, words",
    [
        (fleet({"a": "0"}, entries=[entry("E0", "a", "restore_failed")]), ["a", "restore_failed", "E0", "restore"]),
        (fleet({"a": "0"}, event("E1", "a")), ["a", "E1", "Run this again"]),
        (fleet({"a": "0"}, event("E1", "a", left=-5)), ["a", "E1", "its time has passed"]),
    ],
)
def test_what_is_left_is_named_with_host_and_event_and_what_to_do(answers, words):
    found = rolling.verdict(make(answers), [], [])
    assert not found["converged"]
    (sentence,) = found["left"]
    for word in words:
        assert word in sentence


def test_troubles_and_lost_hosts_are_left():
    found = rolling.verdict(make(fleet(FOUR)), [{"host": "a", "why": "its drain failed"}], ["b"])
    assert not found["converged"]
    assert found["left"][0] == "a: its drain failed"
    assert found["left"][1].startswith("b: it does not answer any more")
    assert found["lost"] == ["b"]


def test_a_run_in_which_no_host_answered_has_not_converged():
    found = rolling.verdict(make({"a": UNREACHABLE, "b": UNREACHABLE}), [], [])
    assert not found["converged"]
    assert "None of the 2 hosts answered" in found["left"][0]
    assert "a: Connection timed out" in found["left"][0]


def test_a_run_over_no_host_at_all_has_nothing_left():
    assert rolling.verdict(make({}), [], [])["converged"]


def test_what_a_watcher_has_open_is_not_left():
    assert rolling.verdict(make(fleet({"a": "0"}, entries=[entry("E0", "a", actor=WATCHER)])), [], [])["converged"]


def test_an_event_that_is_for_a_later_run_is_not_left():
    answers = fleet({"a": "0"}, event("E1", "a", "x", left=90000))
    made = make(answers)
    assert made["batches"][0]["is_for_later"]
    assert rolling.verdict(made, [], [])["converged"]


def test_what_a_balancer_has_in_its_journal_for_others_is_not_its_own():
    for_web = dict(entry("E1", "web_0"), changes=[{"backend": "haproxy_server"}])
    assert rolling.open_entries([for_web], None) == {"vm": None, "restore": []}
    own = dict(entry("E2", "lb_0"), changes=[{"backend": "systemd"}])
    assert rolling.open_entries([for_web, own], None)["vm"] == "lb_0"


def test_a_change_made_elsewhere_is_restored_also_if_the_vm_has_lost_its_own_journal():
    answers = {"a": answer("a", domain="0"), "lb": answer("lb", domain="0", entries=[entry("E1", "A")])}
    made = make(answers)
    assert [one["event_id"] for one in still_open(made, "a", answers["a"])["restore"]] == ["E1"]
    assert still_open(made, "lb", answers["lb"])["restore"] == []
    assert not rolling.verdict(made, [], [])["converged"]
