# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import copy
import json

import pytest
from ansible.errors import AnsibleFilterError
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.azops.maintenance.plugins.filter.plan import plan
from ansible_collections.azops.maintenance.plugins.filter.plan_table import plan_table
from ansible_collections.azops.maintenance.plugins.plugin_utils._plan_view import group_name
from ansible_collections.azops.maintenance.tests.unit.plugins.fleets import (
    FOUR,
    NOW,
    UNREACHABLE,
    answer,
    at,
    entry,
    event,
    fleet,
    make,
    the_event,
)

SIX = dict.fromkeys("abcdef", "0")


def single_events(names, **more):
    return [event("E" + name, name, **more) for name in names]


def batches(made):
    return [batch["hosts"] for batch in made["batches"]]


def scope_of(made, host):
    return made["hosts"][host]["scope"]


# Events


def test_without_events_there_is_nothing_to_do():
    made = make(fleet(FOUR))
    assert (made["batches"], made["events"], made["restore"]) == ([], [], [])


def test_an_event_seen_from_a_hundred_vms_is_one_event():
    hosts = {"vm{0}".format(number): str(number % 5) for number in range(100)}
    made = make(fleet(hosts, event("E1", "vm7")))
    assert the_event(made)["seen_by"] == 100
    assert batches(made) == [["vm7"]]


def test_names_and_ids_compare_without_regard_to_case():
    made = make({"a": answer("WEB_0", event("abc", "web_0")), "b": answer("web_1", event("ABC", "Web_0", "WEB_1"))})
    (found,) = made["events"]
    assert found["event_id"] == "abc"
    assert found["hosts"] == ["a", "b"]


def test_the_name_in_azure_counts_and_not_the_name_in_the_inventory():
    made = make({"a": answer("b", event("E1", "a", "b")), "b": answer("x", event("E1", "a", "b"))})
    assert the_event(made)["hosts"] == ["a"]
    assert the_event(made)["unmanaged"] == ["a"]


def test_a_vm_of_the_same_name_in_another_group_is_not_hit():
    made = make({"one": answer("web_0", event("E1", "web_0")), "two": answer("web_0")})
    assert the_event(made)["hosts"] == ["one"]


def test_a_vm_that_read_its_document_too_early_is_known_by_its_resource_group():
    here = "/subscriptions/S/resourceGroups/{0}/providers/Microsoft.Compute/virtualMachines/{1}"
    made = make(
        {
            "a": answer("a", event("E1", "a", "b"), resource_id=here.format("Web", "a")),
            "b": answer("b", resource_id=here.format("WEB", "b")),
            "other": answer("b", resource_id=here.format("db", "b")),
        }
    )
    assert the_event(made)["hosts"] == ["a", "b"]
    assert scope_of(made, "a") == scope_of(made, "b") != scope_of(made, "other")


def test_an_event_that_one_host_saw_started_has_started():
    started = event("E1", "a", status="Started", left=None)
    made = make({"a": answer("a", event("E1", "a")), "b": answer("b", started)})
    assert the_event(made)["skipped"] == "started"


def test_two_readings_of_an_event_are_united():
    made = make({"a": answer("a", event("E1", "a", left=900)), "b": answer("b", event("E1", "b", left=600))})
    assert the_event(made)["resources"] == ["a", "b"]
    assert the_event(made)["seconds_left"] == 600


def test_two_inventory_names_of_one_vm_are_both_hit_and_said():
    made = make({"a": answer("web_0", event("E1", "web_0")), "b": answer("web_0", event("E1", "web_0"))})
    assert batches(made) == [["a", "b"]]
    assert "a and b are the same VM under several names." in made["warnings"]


# Scopes and domains


def test_the_scope_is_first_of_all_what_the_user_says():
    made = make({"a": answer("a", scale_set_id="/x/Set")}, variables={"a": {"scope": "mine"}})
    assert scope_of(made, "a") == "mine"


def test_then_it_is_the_id_of_the_scale_set():
    made = make({"a": answer("a", scale_set_id="/x/Set", scale_set_name="n", placement_group_id="p")})
    assert scope_of(made, "a") == "/x/set"


def test_then_the_name_of_the_scale_set_with_the_placement_group():
    made = make({"a": answer("a", scale_set_name="N", placement_group_id="P"), "b": answer("b", scale_set_name="N")})
    assert (scope_of(made, "a"), scope_of(made, "b")) == ("n/p", "vm b")


def test_then_all_hosts_that_see_the_same_event_also_by_way_of_others():
    first, second = event("E1", "a"), event("E2", "c")
    made = make({"a": answer("a", first), "b": answer("b", first, second), "c": answer("c", second), "d": answer("d")})
    assert [scope_of(made, host) for host in "abcd"] == ["set of a", "set of a", "set of a", "vm d"]


def test_the_domain_is_the_update_domain_or_what_the_user_lists():
    made = make(
        {
            "a": answer("a", domain="1", fault_domain="7"),
            "b": answer("b", fault_domain="7", zone="2"),
            "c": answer("c", fault_domain="7"),
            "d": answer("d"),
            "e": answer("e", domain="1"),
            "f": answer("f"),
        },
        domain_by=["rack", "zone", "fault_domain"],
        variables={"d": {"variables": {"rack": 4}}, "e": {"domain": "left"}},
    )
    domains = [made["hosts"][host]["domain"] for host in "abcdef"]
    assert domains == ["update domain 1", "zone 2", "fault domain 7", "rack 4", "left", "vm f"]


def test_groups_have_safe_names_and_no_two_scopes_share_one():
    assert group_name("web", "update domain 0") == "maintenance_scope_web_update_domain_0"
    names = [group_name(scope) for scope in ("/a/web", "/b/web", "web", "web!", "{{ x }}", "ü")]
    assert len(set(names)) == len(names)
    assert all(name.isascii() and name.isidentifier() for name in names)


# Units and batches


def test_units_of_one_domain_are_one_batch():
    made = make(fleet(FOUR, event("E1", "a"), event("E2", "d"), event("E3", "b")))
    assert batches(made) == [["a", "d"], ["b"]]
    assert [unit["events"] for unit in made["batches"][0]["units"]] == [["E1"], ["E2"]]


def test_events_that_share_a_vm_are_one_unit():
    made = make(fleet(FOUR, event("E1", "a"), event("E2", "a", "d"), event("E3", "d")))
    assert [unit["events"] for unit in made["batches"][0]["units"]] == [["E1", "E2", "E3"]]


def test_events_that_share_a_vm_that_is_not_reached_are_one_unit():
    made = make(fleet(FOUR, event("E1", "a", "x"), event("E2", "b", "X")))
    assert batches(made) == [["a", "b"]]
    assert made["batches"][0]["spans_domains"]


def test_an_event_over_several_domains_is_a_batch_of_its_own():
    made = make(fleet(FOUR, event("E1", "a", "b"), event("E2", "d", left=950)))
    assert batches(made) == [["a", "b"], ["d"]]
    assert [batch["spans_domains"] for batch in made["batches"]] == [True, False]


def test_the_earliest_deadline_comes_first():
    made = make(fleet(FOUR, event("E1", "a", left=3000), event("E2", "b", left=2000), event("E3", "c", left=2500)))
    assert batches(made) == [["b"], ["c"], ["a"]]


def test_a_deadline_that_is_not_known_may_be_any_moment():
    made = make(fleet(FOUR, event("E1", "a", left=900), event("E2", "b", left=None)))
    assert batches(made) == [["b"], ["a"]]
    assert made["batches"][0]["drain_by"] is None
    assert not made["batches"][0]["forced"]


def test_what_users_asked_for_comes_first_in_its_batch():
    made = make(fleet(FOUR, event("E1", "a", left=900), event("E2", "d", left=950, source="User")))
    assert made["batches"][0]["events"] == ["E2", "E1"]
    assert batches(made) == [["d", "a"]]


def test_an_event_over_two_scopes_keeps_both_in_one_line_even_side_by_side():
    answers = fleet({"a": "0", "b": "0", "c": "1"}, event("E1", "a", "b"), event("E2", "c", left=950))
    variables = {"a": {"scope": "one"}, "b": {"scope": "two"}, "c": {"scope": "two"}}
    made = make(answers, variables=variables, side_by_side=True)
    assert [(batch["step"], batch["hosts"]) for batch in made["batches"]] == [(1, ["a", "b"]), (2, ["c"])]
    assert made["batches"][0]["spans_domains"]


@pytest.mark.parametrize("side_by_side, steps", [(False, [1, 2, 3, 4]), (True, [1, 1, 2, 2])])
def test_scopes_run_side_by_side_only_when_asked(side_by_side, steps):
    one = fleet({"a": "0", "b": "1"}, event("E1", "a"), event("E2", "b", left=950))
    two = fleet({"x": "0", "y": "1"}, event("E3", "x", left=920), event("E4", "y", left=960))
    made = make({**one, **two}, side_by_side=side_by_side)
    assert batches(made) == [["a"], ["x"], ["b"], ["y"]]
    assert [batch["step"] for batch in made["batches"]] == steps


# How many may be out


@pytest.mark.parametrize("limit, sizes", [(None, [6]), (4, [4, 2]), ("2", [2, 2, 2]), ("50%", [3, 3]), ("1%", [1] * 6)])
def test_at_most_max_unavailable_are_out_at_once(limit, sizes):
    made = make(fleet(SIX, *single_events("abcdef", left=9000)), max_unavailable=limit)
    assert [len(batch["hosts"]) for batch in made["batches"]] == sizes
    assert not any(batch["over_limit"] for batch in made["batches"])


def test_a_larger_event_runs_alone_and_is_reported():
    made = make(fleet(SIX, event("E1", "a", "b", "c"), event("E2", "d", left=990)), max_unavailable=2)
    assert batches(made) == [["a", "b", "c"], ["d"]]
    assert made["batches"][0]["over_limit"] == "3 of set of a out at once, 2 allowed"


def test_hosts_that_are_out_already_count():
    answers = fleet(SIX, *single_events("cdef", left=9000))
    answers["a"]["journal"]["entries"] = [entry("gone", "a")]
    answers["b"]["events"].append(event("now", "b", status="Started", left=None))
    made = make(answers, max_unavailable=4)
    assert batches(made) == [["c", "d"], ["e", "f"]]


def test_hosts_that_are_unreachable_count():
    answers = dict(fleet(SIX, *single_events("abcd", left=9000)), z=UNREACHABLE, y=None)
    assert batches(make(answers, max_unavailable=3)) == [["a", "b"], ["c", "d"]]
    elsewhere = {"z": {"scope": "elsewhere"}}
    assert batches(make(answers, max_unavailable=3, variables=elsewhere)) == [["a", "b", "c"], ["d"]]


def test_a_host_that_is_out_for_the_very_event_counts_once():
    answers = fleet(SIX, *single_events("ab", left=9000))
    answers["a"]["journal"]["entries"] = [entry("Ea", "a")]
    made = make(answers, max_unavailable=2)
    assert batches(made) == [["a", "b"]]
    assert made["batches"][0]["phases"] == [{"host": "a", "event_id": "Ea", "phase": "drained"}]
    made = make({"a": answer("a", event("Ea", "a"), entries=[entry("Ea", "a")])}, max_unavailable=1)
    assert made["batches"][0]["over_limit"] is None


def test_a_batch_waits_for_other_domains_that_are_out_already():
    answers = fleet(FOUR, event("E1", "a"), event("E2", "b", status="Started", left=None))
    answers["c"]["journal"]["entries"] = [entry("E0", "c")]
    answers["d"]["journal"]["entries"] = [entry("E0", "d")]
    made = make(dict(answers, z=UNREACHABLE))
    assert [out["host"] for out in made["batches"][0]["waits_for"]] == ["b", "c"]
    assert "1: other domains are out already: b, c" in "\n".join(plan_table(made))


def test_an_event_that_needs_no_drain_takes_nobody_out():
    made = make(fleet(SIX, *single_events("abc", kind="Freeze", duration=5)), max_unavailable=1)
    assert batches(made) == [["a", "b", "c"]]
    assert made["batches"][0]["drain"] == []


# What is open


def test_what_is_open_although_its_event_is_gone_is_restored_first():
    answers = fleet(FOUR, event("E1", "b"))
    answers["a"]["journal"]["entries"] = [entry("GONE", "a"), entry("old", "a", "closed")]
    made = make(answers)
    assert [(found["host"], found["event_id"]) for found in made["restore"]] == [("a", "GONE")]
    assert batches(made) == [["b"]]


def test_a_document_that_is_not_understood_does_not_prove_that_an_event_is_gone():
    made = make({"a": answer("a", entries=[entry("E1", "a")], unreadable=["?"])})
    assert made["restore"] == []
    assert made["open"][0]["state"] == "unknown"


def test_an_event_that_is_still_there_is_not_restored():
    made = make({"a": answer("a", event("E1", "a", status="Started", left=None), entries=[entry("e1", "a")])})
    assert made["restore"] == []
    assert made["open"][0]["state"] == "started"


def test_a_change_made_elsewhere_waits_for_the_vm_that_it_was_made_for():
    balancer = answer("lb", entries=[entry("E1", "web_0")])
    assert make({"lb": balancer})["open"][0]["state"] == "unknown"
    assert make({"lb": balancer, "w": answer("WEB_0")})["restore"][0]["host"] == "lb"
    assert make({"lb": balancer, "w": answer("web_0", event("E1", "web_0"))})["restore"] == []


# What is not done, and why


@pytest.mark.parametrize(
    "one, policy, skipped",
    [
        (event("E1", "a"), [{"action": "ignore"}], "ignored"),
        (event("E1", "a"), [{"action": "observe"}], "observed"),
        (event("E1", "a", status="Started", left=None), None, "started"),
        (event("E1", "a", left=0), None, "too_late"),
        (event("E1"), None, "names_no_vm"),
        (event("E1", "elsewhere"), None, "unmanaged"),
        (event("E1", "a", left=90000), {"approve_between": "22:00-05:00"}, "waiting"),
    ],
)
def test_events_that_are_left_alone_are_listed_with_the_reason(one, policy, skipped):
    made = make({"a": answer("a", one)}, variables={"a": {"policy": policy}})
    found = the_event(made)
    assert (found["skipped"], found["batch"], found["drain"], found["approve"]) == (skipped, None, False, False)
    assert found["why"]
    assert made["batches"] == []


def test_an_event_waits_for_its_window_only_if_there_is_time():
    policy = {"a": {"policy": {"approve_between": "22:00-05:00"}}}
    made = make({"a": answer("a", event("E1", "a", left=3600 * 10 + 100))}, variables=policy)
    assert the_event(made)["skipped"] is None
    made = make({"a": answer("a", event("E1", "a", left=3600 * 10 + 200))}, variables=policy)
    assert the_event(made)["approve_from"] == "2026-11-18T22:00:00Z"


def test_an_unmanaged_event_is_drained_but_never_approved():
    found = the_event(make(fleet(FOUR, event("E1", "a", "x"))))
    assert (found["unmanaged"], found["drain"], found["approve"], found["batch"]) == (["x"], True, False, 1)
    assert "not reached: x" in found["why"]


def test_an_unmanaged_event_is_approved_if_the_user_says_so():
    found = the_event(make(fleet(FOUR, event("E1", "a", "x")), approve_unmanaged=True))
    assert (found["drain"], found["approve"]) == (True, True)


def test_an_unmanaged_event_that_needs_no_drain_is_left_alone():
    found = the_event(make(fleet(FOUR, event("E1", "a", "x", duration=0))))
    assert (found["skipped"], found["approve"]) == ("unmanaged", False)


def test_a_vm_that_did_not_answer_makes_its_event_unmanaged():
    found = the_event(make(dict(fleet({"a": "0"}, event("E1", "a", "b")), b=UNREACHABLE)))
    assert (found["unmanaged"], found["approve"]) == (["b"], False)


@pytest.mark.parametrize("more, variables", [({"held_by": "/hold"}, {}), ({}, {"a": {"hold": True}})])
def test_a_held_vm_is_not_drained_and_its_event_not_approved(more, variables):
    events = [event("E1", "a", "d"), event("E2", "a")]
    answers = {"a": answer("a", *events, domain="0", **more), "d": answer("d", *events, domain="0")}
    made = make(answers, variables=variables)
    assert batches(made) == [["d"]]
    assert the_event(made)["approve"] is False
    assert the_event(made, "E2")["skipped"] == "held"
    assert [hold["host"] for hold in made["holds"]] == ["a"]


def test_what_the_watcher_of_a_vm_takes_care_of_is_left_to_it():
    answers = fleet({"a": "0"}, event("E1", "a"), entries=[entry("e1", "a", actor="azops-watcher")])
    made = make(answers)
    found = the_event(made)
    assert (found["skipped"], found["drain"], found["approve"], made["restore"]) == ("watcher", False, False, [])
    assert "the watcher of a" in found["why"]
    assert (found["hosts"], found["watched"]) == ([], ["a"])
    assert any("Reboot" in line and " a " in line for line in plan_table(made))
    assert made["open"][0]["actor"] == "azops-watcher"


def test_what_a_watcher_has_open_although_its_event_is_gone_is_not_restored():
    made = make({"a": answer("a", entries=[entry("E0", "a", actor="azops-watcher")])})
    assert (made["open"][0]["state"], made["restore"]) == ("gone", [])


def test_a_vm_without_a_watcher_is_drained_although_another_vms_watcher_takes_care_of_the_event():
    answers = fleet({"a": "0", "d": "0", "b": "1"}, event("E1", "a", "d"))
    answers["a"]["journal"]["entries"] = [entry("E1", "a", actor="azops-watcher")]
    made = make(answers)
    found = the_event(made)
    assert (found["hosts"], found["drain"], found["approve"], found["skipped"]) == (["d"], True, False, None)
    assert "not approved, the watcher of a takes care of it" in found["why"]
    assert found["witnesses"] == ["b"]
    assert batches(made) == [["d"]]


def test_the_strictest_policy_of_an_events_vms_wins():
    variables = {"a": {"policy": [{"action": "approve"}]}, "d": {"policy": [{"action": "drain", "name": "careful"}]}}
    found = the_event(make(fleet(FOUR, event("E1", "a", "d")), variables=variables))
    assert (found["action"], found["drain"], found["approve"]) == ("drain", True, False)
    assert found["why"] == "policy: careful"


def test_an_unknown_type_is_drained_for_and_warned_of():
    made = make(fleet(FOUR, event("E1", "a", kind="Teleport")))
    assert the_event(made)["action"] == "drain"
    assert len(made["warnings"]) == 1


def test_an_unknown_status_is_drained_for_but_not_approved():
    found = the_event(make(fleet(FOUR, event("E1", "a", status="Pondered"))))
    assert (found["drain"], found["approve"]) == (True, False)


@pytest.mark.parametrize(
    "said, kind",
    [
        (None, "no_answer"),
        (False, "no_answer"),
        (UNREACHABLE, "unreachable"),
        ({"failed": True, "msg": "nobody", "error_kind": "not_azure"}, "not_azure"),
        ({"failed": True, "msg": "no python"}, "failed"),
    ],
)
def test_hosts_that_do_not_answer_are_listed(said, kind):
    made = make({"a": said})
    assert [(silent["host"], silent["kind"]) for silent in made["silent"]] == [("a", kind)]
    assert made["hosts"] == {}


def test_witnesses_saw_the_event_and_are_not_in_its_batch():
    made = make(fleet(FOUR, event("E1", "a"), event("E2", "d")))
    assert the_event(made)["witnesses"] == ["b", "c"]


def test_journals_and_endpoints_and_clocks_that_are_odd_are_listed():
    made = make(
        {
            "a": answer("a", journal=None, journal_error="not root"),
            "b": answer("b", endpoint="http://127.0.0.1:1", endpoint_is_azure=False, read_at=at(3600)),
        }
    )
    assert made["journal_problems"] == [{"host": "a", "why": "not root"}]
    assert made["not_azure_endpoints"] == [{"host": "b", "endpoint": "http://127.0.0.1:1"}]
    assert "The clock of b is ahead" in made["warnings"][0]


# Time


def test_times_are_counted_backwards_over_the_plan():
    made = make(fleet(FOUR, *single_events("abc", left=900)))
    assert [batch["drain_by"] for batch in made["batches"]] == [at(840)] * 3
    assert [batch["must_start_by"] for batch in made["batches"]] == [at(480), at(600), at(720)]
    assert not any(batch["forced"] for batch in made["batches"])


def test_late_batches_are_merged_into_one_that_is_forced():
    made = make(fleet(FOUR, event("E1", "a", left=170), event("E2", "b", left=175), event("E3", "c", left=900)))
    assert batches(made) == [["a", "b"], ["c"]]
    assert [batch["forced"] for batch in made["batches"]] == [True, False]
    assert not made["batches"][0]["spans_domains"]


def test_a_batch_that_would_have_to_start_while_the_late_ones_drain_is_merged_too():
    five = {name: str(number) for number, name in enumerate("abcde")}
    made = make(fleet(five, *single_events("abcde", left=350)))
    assert batches(made) == [["a", "b", "c", "d"], ["e"]]
    assert made["batches"][0]["must_start_by"] == at(50)


def test_a_batch_that_is_late_by_itself_leaves_the_others_alone():
    made = make(fleet(FOUR, event("E1", "a", left=90), event("E2", "b", left=900)))
    assert batches(made) == [["a"], ["b"]]
    assert [batch["forced"] for batch in made["batches"]] == [True, False]


def test_a_late_scope_does_not_force_another_that_runs_side_by_side():
    one = fleet({"a": "0", "b": "1"}, *single_events("ab", left=150))
    two = fleet({"x": "0", "y": "1"}, *single_events("xy", left=900))
    made = make({**one, **two}, side_by_side=True)
    assert batches(made) == [["a", "b"], ["x"], ["y"]]
    assert [batch["forced"] for batch in made["batches"]] == [True, False, False]


def test_steps_have_the_hosts_of_their_batches_and_one_that_nothing_hits_each():
    one = fleet({"a": "0", "b": "1", "c": "2", "d": "3"}, event("E1", "a"), event("E2", "b", left=950))
    steps = make(one)["steps"]
    assert [step["hosts"] for step in steps] == [["a"], ["b"]]
    assert [step["spare"] for step in steps] == [["c"], ["d"]]
    assert [step["members"] for step in steps] == [["a", "c"], ["b", "d"]]


def test_without_a_host_to_spare_a_step_has_only_its_own():
    made = make(fleet({"a": "0", "b": "1"}, event("E1", "a"), event("E2", "b", left=950)))
    assert [step["members"] for step in made["steps"]] == [["a"], ["b"]]


def test_scopes_that_run_side_by_side_share_their_steps():
    one = fleet({"a": "0", "b": "1"}, event("E1", "a"), event("E2", "b", left=950))
    two = fleet({"x": "0", "y": "1"}, event("E3", "x", left=920), event("E4", "y", left=960))
    made = make({**one, **two}, side_by_side=True)
    assert [step["hosts"] for step in made["steps"]] == [["a", "x"], ["b", "y"]]


def test_a_host_knows_its_batch():
    made = make(fleet(FOUR, event("E1", "a"), event("E2", "b", left=950)))
    assert {name: host["batch"] for name, host in made["hosts"].items()} == {"a": 1, "b": 2, "c": None, "d": None}


@pytest.mark.parametrize(
    "one, later",
    [
        (event("E1", "a", "x", left=1979), False),
        (event("E1", "a", "x", left=1981), True),
        (event("E1", "a", left=90000), False),
        (event("E1", "a", "x", left=None), False),
    ],
)
def test_what_is_not_approved_and_need_not_start_while_a_run_waits_is_for_later(one, later):
    made = make({"a": answer("a", one)}, longest_wait=1800)
    assert made["batches"][0]["is_for_later"] is later
    assert len(made["steps"]) == (0 if later else 1)


# Bad input


@pytest.mark.parametrize(
    "answers, options, words",
    [
        ([], {}, "must be a dictionary"),
        ({"a": [1]}, {}, "Host a, answer"),
        ({"a": {"vm": 1, "events": []}}, {}, "Host a, vm"),
        ({"a": answer("")}, {}, "Host a, vm.name"),
        ({"a": answer("a", events={})}, {}, "Host a, events: must be a list"),
        ({"a": answer("a", {"event_id": ""})}, {}, "Host a, events"),
        ({"a": answer("a", dict(event("E1"), resources="a"))}, {}, "Host a, events[E1].resources"),
        ({"a": answer("a", dict(event("E1"), not_before="soon"))}, {}, "Host a, events[E1].not_before"),
        ({"a": answer("a", entries=[{"is_open": True}])}, {}, "Host a, journal.entries[].event_id"),
        ({"a": answer("a")}, {"variables": {"a": {"policy": "x"}}}, "Host a, maintenance_policy"),
        ({"a": answer("a")}, {"variables": {"a": {"hold": "yes"}}}, "Host a, variables.hold"),
        ({"a": answer("a")}, {"variables": {"a": {"scpoe": "x"}}}, "scpoe"),
        ({"a": answer("a")}, {"variables": {"a": {"scope": ["x"]}}}, "Host a, variables.scope"),
        ({}, {"variables": []}, "variables must"),
        ({}, {"max_unavailable": 0}, "max_unavailable"),
        ({}, {"max_unavailable": "101%"}, "max_unavailable"),
        ({}, {"max_unavailable": True}, "max_unavailable"),
        ({}, {"drain_timeout": -1}, "drain_timeout"),
        ({}, {"margin": "1m"}, "margin"),
        ({}, {"domain_by": "zone"}, "domain_by"),
        ({}, {"side_by_side": "yes"}, "side_by_side"),
    ],
)
def test_wrong_input_is_named(answers, options, words):
    with pytest.raises(AnsibleFilterError) as caught:
        make(answers, **options)
    assert words in str(caught.value)


def test_a_wrong_time_is_named():
    with pytest.raises(AnsibleFilterError, match="now must be a time"):
        plan({}, now="soon")


# For people


def test_the_table_says_what_is_done_and_why():
    answers = dict(fleet(FOUR, event("E1", "a", "x"), event("E2", "b", status="Started", left=None)), z=UNREACHABLE)
    answers["c"]["journal"]["entries"] = [entry("E0", "c")]
    lines = "\n".join(plan_table(make(answers)))
    for words in ("drain only", "x (not reached)", "nothing: started", "z: unreachable", "c: drained", "domain 0"):
        assert words in lines


def test_the_table_has_no_control_characters():
    lines = plan_table(make({"a": answer("a", event("E\x1b[2J1", "a"))}))
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("wrong", [None, [], {}, {"events": None}])
def test_a_table_of_something_else_is_refused(wrong):
    with pytest.raises(AnsibleFilterError):
        plan_table(wrong)


# What always holds


@st.composite
def scans(draw):
    answers = {}
    variables = {}
    for group in range(draw(st.integers(1, 3))):
        names = ["g{0}v{1}".format(group, number) for number in range(draw(st.integers(1, 7)))]
        events = [
            event(
                "{0}-{1}".format(group, number),
                *draw(st.lists(st.sampled_from(names + ["x"]), max_size=4, unique=True)),
                left=draw(st.sampled_from([None, -5, 30, 200, 400, 900, 5000])),
                status=draw(st.sampled_from(["Scheduled", "Scheduled", "Scheduled", "Started"])),
                source=draw(st.sampled_from(["Platform", "User"])),
                kind=draw(st.sampled_from(["Reboot", "Freeze", "Preempt", "Other"])),
                duration=draw(st.sampled_from([None, 0, 5, 60])),
            )
            for number in range(draw(st.integers(0, 6)))
        ]
        for name in names:
            kind = draw(st.sampled_from(["answers"] * 6 + ["held", "unreachable", "open"]))
            domain = draw(st.sampled_from([None, "0", "1", "2"]))
            entries = [entry(draw(st.sampled_from(["gone", "0-0"])), name)] if kind == "open" else []
            held_by = "hold" if kind == "held" else None
            found = answer(name, *events, domain=domain, entries=entries, held_by=held_by)
            answers[name] = UNREACHABLE if kind == "unreachable" else found
            variables[name] = {"scope": draw(st.sampled_from([None, None, None, "mine"]))}
    options = {
        "max_unavailable": draw(st.sampled_from([None, 1, 2, "50%"])),
        "side_by_side": draw(st.booleans()),
        "approve_unmanaged": draw(st.booleans()),
        "variables": variables,
    }
    return answers, options


holds_for_every_scan = settings(max_examples=150, deadline=None)


@holds_for_every_scan
@given(scans())
def test_no_event_is_split_and_every_hit_host_is_in_exactly_one_batch(scan):
    answers, options = scan
    made = make(answers, **options)
    planned = [event_id for batch in made["batches"] for event_id in batch["events"]]
    acted_on = [one for one in made["events"] if one["skipped"] is None]
    assert sorted(planned) == sorted(one["event_id"] for one in acted_on)
    hosts = [host for batch in made["batches"] for host in batch["hosts"]]
    assert len(hosts) == len(set(hosts))
    assert set(hosts) == {host for one in acted_on for host in one["hosts"]}
    for one in acted_on:
        assert set(one["hosts"]) <= set(made["batches"][one["batch"] - 1]["hosts"])


@holds_for_every_scan
@given(scans())
def test_no_two_domains_of_a_scope_are_in_one_batch_unless_azure_forces_it(scan):
    answers, options = scan
    made = make(answers, **options)
    for batch in made["batches"]:
        if len(batch["domains"]) > 1:
            assert batch["forced"] or (batch["spans_domains"] and len(batch["units"]) == 1)
    for step in {batch["step"] for batch in made["batches"]}:
        scopes = [scope for batch in made["batches"] if batch["step"] == step for scope in batch["scopes"]]
        assert len(scopes) == len(set(scopes))


@holds_for_every_scan
@given(scans())
def test_the_limit_holds_unless_it_is_reported(scan):
    answers, options = scan
    made = make(answers, **options)
    states = {state["scope"]: state for state in made["scopes"]}
    for batch in made["batches"]:
        if batch["over_limit"]:
            assert batch["forced"] or len(batch["units"]) == 1
        elif not batch["forced"]:
            for scope in batch["scopes"]:
                out = {reason["host"] for reason in states[scope]["out"]}
                drained = {host for host in batch["drain"] if scope_of(made, host) == scope}
                limit = states[scope]["max_unavailable"]
                assert not drained or limit is None or len(out | drained) <= limit


@holds_for_every_scan
@given(scans())
def test_nothing_is_approved_that_must_not_be(scan):
    answers, options = scan
    for one in make(answers, **options)["events"]:
        assert one["why"]
        if one["approve"]:
            assert one["event_status"] == "Scheduled"
            assert not one["held"]
            assert not one["unmanaged"] or options["approve_unmanaged"]
            assert one["batch"] is not None


@holds_for_every_scan
@given(scans())
def test_batches_start_in_order_and_only_the_first_is_late(scan):
    answers, options = scan
    made = make(answers, **dict(options, side_by_side=False))
    starts = [batch["must_start_by"] for batch in made["batches"] if batch["must_start_by"] is not None]
    assert starts == sorted(starts)
    assert not any(batch["forced"] for batch in made["batches"][1:])
    assert all(batch["must_start_by"] >= NOW for batch in made["batches"][1:] if batch["must_start_by"])


@holds_for_every_scan
@given(scans(), st.randoms(use_true_random=False))
def test_the_same_input_in_any_order_gives_the_same_plan(scan, shuffle):
    answers, options = scan
    before = copy.deepcopy(answers)
    made = make(answers, **options)
    names = list(answers)
    shuffle.shuffle(names)
    again = make({name: answers[name] for name in names}, **options)
    assert json.dumps(made) == json.dumps(again)
    assert answers == before
    assert plan_table(made)
