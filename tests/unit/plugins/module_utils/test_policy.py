# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.azops.maintenance.plugins.module_utils._document import EVENT_TYPES, parse_document
from ansible_collections.azops.maintenance.plugins.module_utils._errors import InputError
from ansible_collections.azops.maintenance.plugins.module_utils._policy import (
    STRICTEST_FIRST,
    approve_at,
    decide,
    parse_policy,
    strictest,
)

MARGIN = timedelta(seconds=60)


def event(event_type="Reboot", duration=-1, source="Platform", resources=("web_0",), not_before=""):
    fields = {
        "EventId": "E1",
        "EventType": event_type,
        "DurationInSeconds": duration,
        "EventSource": source,
        "Resources": list(resources),
        "NotBefore": not_before,
    }
    return parse_document({"DocumentIncarnation": 1, "Events": [fields]}).events[0]


def action(policy, *args, **fields):
    return decide(parse_policy(policy), event(*args, **fields)).action


def at(text):
    return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=timezone.utc)


def window(text):
    return parse_policy({"approve_between": text}).approve_between


# The built-in rules


@pytest.mark.parametrize("nothing", [None, "", [], {}, {"rules": []}, {"rules": None}, {"approve_between": None}])
@pytest.mark.parametrize(
    "event_type, duration, wanted",
    [
        ("Freeze", 0, "approve"),
        ("Freeze", 1, "approve"),
        ("Freeze", 9, "approve"),
        ("Freeze", 10, "drain_and_approve"),
        ("Freeze", -1, "drain_and_approve"),
        ("Freeze", None, "drain_and_approve"),
        ("Reboot", 0, "approve"),
        ("Reboot", 9, "drain_and_approve"),
        ("Reboot", -1, "drain_and_approve"),
        ("Redeploy", -1, "drain_and_approve"),
        ("Terminate", -1, "drain_and_approve"),
        ("Preempt", -1, "drain"),
        ("Preempt", 5, "drain"),
        ("Levitate", -1, "drain"),
        ("Levitate", 5, "drain"),
        (None, None, "drain"),
    ],
)
def test_without_rules_the_built_in_ones_decide(nothing, event_type, duration, wanted):
    assert action(nothing, event_type, duration) == wanted


def test_an_unknown_type_is_drained_for_with_a_warning_that_names_it():
    decision = decide(parse_policy(None), event("Levitate"))
    assert decision.drains and not decision.approves
    assert "'Levitate'" in decision.warning and "E1" in decision.warning


@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_a_known_type_gives_no_warning(event_type):
    assert decide(parse_policy(None), event(event_type)).warning is None


def test_a_decision_says_what_it_does():
    drains, approves = {"drain", "drain_and_approve"}, {"drain_and_approve", "approve"}
    for word in STRICTEST_FIRST:
        decision = decide(parse_policy([{"action": word}]), event())
        assert (decision.drains, decision.approves) == (word in drains, word in approves)


# The user's rules


def test_the_first_rule_that_fits_decides():
    rules = [{"types": ["Freeze"], "action": "ignore"}, {"action": "observe"}, {"action": "drain"}]
    assert action(rules, "Freeze") == "ignore"
    assert action(rules, "Reboot") == "observe"
    assert action(list(reversed(rules)), "Freeze") == "drain"


def test_where_no_own_rule_fits_the_built_in_ones_decide():
    decision = decide(parse_policy([{"name": "mine", "types": ["Preempt"], "action": "ignore"}]), event("Reboot"))
    assert (decision.action, decision.rule) == ("drain_and_approve", "interruption")


def test_a_decision_names_its_rule():
    rules = [{"name": "lab", "resources": ["lab*"], "action": "ignore"}, {"action": "observe"}]
    assert decide(parse_policy(rules), event(resources=["lab_1"])).rule == "lab"
    assert decide(parse_policy(rules), event(resources=["web_1"])).rule == "rule 2"


@pytest.mark.parametrize(
    "rule, fitting, other",
    [
        ({"types": ["reboot", "REDEPLOY"]}, {"event_type": "Redeploy"}, {"event_type": "Freeze"}),
        ({"types": "Reboot"}, {"event_type": "Reboot"}, {"event_type": "Freeze"}),
        ({"types": ["unknown"]}, {"event_type": "Levitate"}, {"event_type": "Reboot"}),
        ({"sources": ["user"]}, {"source": "User"}, {"source": "Platform"}),
        ({"sources": ["user"]}, {"source": "USER"}, {"source": None}),
        ({"shorter_than": 30}, {"duration": 29}, {"duration": 30}),
        ({"shorter_than": "30"}, {"duration": 29}, {"duration": -1}),
        ({"resources": ["WEB_*"]}, {"resources": ["db_0", "Web_7"]}, {"resources": ["db_0", "xweb_1"]}),
        ({"resources": ["web_[01]"]}, {"resources": ["web_1"]}, {"resources": ["web_2"]}),
        ({"resources": ["*"]}, {"resources": ["web_1"]}, {"resources": []}),
        (
            {"types": ["Reboot"], "sources": ["User"]},
            {"event_type": "Reboot", "source": "User"},
            {"event_type": "Reboot", "source": "Platform"},
        ),
    ],
)
def test_a_rule_fits_only_what_it_says(rule, fitting, other):
    rules = [dict(rule, action="ignore")]
    assert action(rules, **fitting) == "ignore"
    assert action(rules, **other) != "ignore"


@pytest.mark.parametrize(
    "rule, key",
    [
        ({}, "action"),
        ({"action": "dance"}, "action"),
        ({"action": None}, "action"),
        ({"action": ["drain"]}, "action"),
        ({"action": "Drain"}, "action"),
        ({"action": "drain", "types": ["Levitate"]}, "types"),
        ({"action": "drain", "types": []}, "types"),
        ({"action": "drain", "types": None}, "types"),
        ({"action": "drain", "types": ""}, "types"),
        ({"action": "drain", "types": [["Reboot"]]}, "types"),
        ({"action": "drain", "types": {"Reboot": 1}}, "types"),
        ({"action": "drain", "sources": ["Moon"]}, "sources"),
        ({"action": "drain", "resources": [7]}, "resources"),
        ({"action": "drain", "resources": [""]}, "resources"),
        ({"action": "drain", "shorter_than": 0}, "shorter_than"),
        ({"action": "drain", "shorter_than": -5}, "shorter_than"),
        ({"action": "drain", "shorter_than": True}, "shorter_than"),
        ({"action": "drain", "shorter_than": 1.5}, "shorter_than"),
        ({"action": "drain", "shorter_than": "ten"}, "shorter_than"),
        ({"action": "drain", "shorter_than": None}, "shorter_than"),
        ({"action": "drain", "shorter_than": 10**10}, "shorter_than"),
        ({"action": "drain", "type": ["Reboot"]}, "type"),
        ({"action": "drain", 7: 8}, "7"),
    ],
)
def test_a_bad_rule_is_refused_by_number_name_and_key(rule, key):
    for rules in ([{"action": "drain"}, dict(rule, name="of mine")], {"rules": [{"action": "drain"}, rule]}):
        with pytest.raises(InputError) as caught:
            parse_policy(rules)
        assert "Rule 2 of the policy" in str(caught.value)
        assert key in str(caught.value)
    with pytest.raises(InputError) as caught:
        parse_policy([dict(rule, name="of mine")])
    assert "Rule 1 of the policy (of mine)" in str(caught.value)


@pytest.mark.parametrize("pattern", ["[z-a]", "[Z-a]", "[", "[!", "[]-a]", "[a-]", "\\", "(*", "**", "[[:alpha:]]"])
def test_any_pattern_either_works_or_is_refused_when_it_is_read(pattern):
    try:
        policy = parse_policy([{"resources": [pattern], "action": "ignore"}])
    except InputError as error:
        assert "Rule 1" in str(error) and "resources" in str(error)
    else:
        decide(policy, event())


@pytest.mark.parametrize("value", ["drain", 5, True, False, 0, {"rule": []}, {"rules": {"a": 1}}, {"rules": "x"}])
def test_what_is_no_policy_is_refused(value):
    with pytest.raises(InputError) as caught:
        parse_policy(value)
    assert "policy" in str(caught.value)


@pytest.mark.parametrize("rules", [False, 0, "", {}])
def test_rules_that_are_no_list_are_refused_also_when_they_are_empty(rules):
    with pytest.raises(InputError) as caught:
        parse_policy({"rules": rules})
    assert "'rules'" in str(caught.value)


@pytest.mark.parametrize("rule", [None, "drain", ["drain"], 5])
def test_a_rule_that_is_no_dictionary_is_refused(rule):
    with pytest.raises(InputError) as caught:
        parse_policy([rule])
    assert "Rule 1" in str(caught.value)


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["drain"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["rules", "approve_between", "action", "types", "resources", "shorter_than", "name"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    )
)
def test_anything_is_a_policy_that_decides_or_our_own_error(value):
    try:
        policy = parse_policy(value)
    except InputError:
        return
    assert decide(policy, event()).action in STRICTEST_FIRST


# Several VMs, one event


def test_the_strictest_action_wins_in_the_order_of_the_design():
    assert STRICTEST_FIRST == ("ignore", "observe", "drain", "drain_and_approve", "approve")
    for place, word in enumerate(STRICTEST_FIRST):
        for laxer in STRICTEST_FIRST[place:]:
            assert strictest([laxer, word]) == strictest([word, laxer]) == word
    assert strictest(action for action in ["approve"]) == "approve"


# When to approve


@pytest.mark.parametrize(
    "text, moment, is_open",
    [
        ("22:00-05:00", "2026-03-01 21:59", False),
        ("22:00-05:00", "2026-03-01 22:00", True),
        ("22:00-05:00", "2026-03-01 23:59", True),
        ("22:00-05:00", "2026-03-02 00:00", True),
        ("22:00-05:00", "2026-03-02 04:59", True),
        ("22:00-05:00", "2026-03-02 05:00", False),
        ("22:00-05:00", "2026-03-02 12:00", False),
        ("01:00 - 02:30", "2026-03-02 00:59", False),
        ("01:00 - 02:30", "2026-03-02 01:00", True),
        ("01:00 - 02:30", "2026-03-02 02:29", True),
        ("01:00 - 02:30", "2026-03-02 02:30", False),
        ("00:00-23:59", "2026-03-02 23:59", False),
        ("23:59-00:00", "2026-03-02 23:59", True),
    ],
)
def test_a_window_is_open_from_its_first_minute_up_to_its_last(text, moment, is_open):
    assert window(text).is_open(at(moment)) is is_open


def test_a_window_opens_next_today_or_tomorrow():
    assert window("22:00-05:00").next_opening(at("2026-03-01 12:30")) == at("2026-03-01 22:00")
    assert window("01:00-02:00").next_opening(at("2026-03-31 12:30")) == at("2026-04-01 01:00")
    seconds = at("2026-03-01 12:30") + timedelta(seconds=7, microseconds=8)
    assert window("22:00-05:00").next_opening(seconds) == at("2026-03-01 22:00")


@pytest.mark.parametrize(
    "not_before, now, wanted",
    [
        ("2026-03-05T00:00:00Z", "2026-03-01 12:00", "2026-03-01 22:00"),
        ("2026-03-05T00:00:00Z", "2026-03-01 23:00", "2026-03-01 23:00"),
        ("2026-03-01T22:01:00Z", "2026-03-01 12:00", "2026-03-01 12:00"),
        ("2026-03-01T22:01:01Z", "2026-03-01 12:00", "2026-03-01 22:00"),
        ("2026-03-01T12:15:00Z", "2026-03-01 12:00", "2026-03-01 12:00"),
        ("", "2026-03-01 12:00", "2026-03-01 12:00"),
    ],
)
def test_an_approval_waits_for_the_window_unless_azure_would_not(not_before, now, wanted):
    announced = event(not_before=not_before)
    assert approve_at(window("22:00-05:00"), announced, at(now), MARGIN) == at(wanted)
    assert approve_at(None, announced, at(now), MARGIN) == at(now)


@pytest.mark.parametrize("value", [None, ""])
def test_no_window_is_always_open(value):
    assert window(value) is None


@pytest.mark.parametrize(
    "value",
    ["22:00", "22-05", "24:00-05:00", "22:60-05:00", "22:00-22:00", "22:00\u201305:00", 5, ["22:00-05:00"], True],
)
def test_a_bad_window_is_refused_by_its_key(value):
    with pytest.raises(InputError) as caught:
        window(value)
    assert "approve_between" in str(caught.value)
