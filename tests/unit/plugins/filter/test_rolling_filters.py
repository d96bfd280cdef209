# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters around the decisions of a rolling run: how Ansible calls them, and what it gets back."""

import importlib
import inspect
import json
from collections.abc import Mapping

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.azops.maintenance.plugins.plugin_utils import _filters
from ansible_collections.azops.maintenance.tests.unit.plugins.fleets import NOW, answer, at, entry, event, fleet, make

NAMES = (
    "approval_gate",
    "batch_troubles",
    "batch_work",
    "lease_verdict",
    "not_approved",
    "open_entries",
    "open_work",
    "rolling_verdict",
)
ANSWERS = fleet({"a": "0", "b": "1"}, event("E1", "a"), entries=[entry("E1", "a")])
PLAN = make(ANSWERS)


def module_of(name):
    return importlib.import_module("ansible_collections.azops.maintenance.plugins.filter." + name)


def filter_of(name):
    filters = module_of(name).FilterModule().filters()
    assert list(filters) == [name]
    return filters[name]


class View(Mapping):
    """A mapping that is no dictionary, as Ansible gives parts of hostvars."""

    def __init__(self, value):
        self._value = value

    def __getitem__(self, key):
        return self._value[key]

    def __iter__(self):
        return iter(self._value)

    def __len__(self):
        return len(self._value)


@pytest.mark.parametrize("name", NAMES)
def test_the_documentation_has_the_options_of_the_filter(name):
    documented = yaml.safe_load(module_of(name).DOCUMENTATION)
    assert documented["name"] == name
    parameters = list(inspect.signature(filter_of(name)).parameters.values())
    options = dict(documented["options"])
    assert options.pop("_input")["required"]
    assert set(options) == {parameter.name for parameter in parameters[1:]}
    for parameter in parameters[1:]:
        is_required = parameter.default is inspect.Parameter.empty
        assert options[parameter.name].get("required", False) is is_required, parameter.name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", [None, 7, "plan", {"hosts": {"a": {}}}])
def test_what_is_no_plan_is_refused_in_the_name_of_the_filter(name, wrong):
    arguments = {
        "approval_gate": (["a"], ANSWERS),
        "batch_troubles": (["a"], [], {}, {}),
        "batch_work": ("a", ANSWERS["a"]),
        "lease_verdict": ([{}], [{}]),
        "not_approved": ([{}],),
        "open_entries": (),
        "open_work": ("a", ANSWERS["a"]),
        "rolling_verdict": ([], []),
    }
    with pytest.raises(AnsibleFilterError) as caught:
        filter_of(name)(wrong, *arguments[name])
    assert "azops.maintenance.{0}: ".format(name) in str(caught.value)


def test_a_time_that_is_none_is_named():
    for name in ("batch_work", "open_work"):
        with pytest.raises(AnsibleFilterError, match="now must be a time"):
            filter_of(name)(PLAN, "a", ANSWERS["a"], now="soon")


def test_a_host_that_is_in_no_batch_is_refused():
    with pytest.raises(AnsibleFilterError, match="batch_work"):
        filter_of("batch_work")(PLAN, "b", ANSWERS["b"])


def test_the_time_that_is_given_counts():
    work = filter_of("batch_work")
    assert work(PLAN, "a", ANSWERS["a"], now=at(850))["drain_seconds"] == 50
    assert work(PLAN, "a", ANSWERS["a"], now=NOW)["drain_seconds"] == 120
    fresh = answer("b", entries=[entry("E0", "b")])
    assert filter_of("open_work")(PLAN, "b", fresh, now=at(700))["wait_seconds"] == 20


def test_without_one_it_is_now():
    assert filter_of("batch_work")(PLAN, "a", ANSWERS["a"])["drain_seconds"] in range(5, 121)
    assert filter_of("open_work")(PLAN, "b", answer("b"))["events"] == []


def test_what_is_left_out_is_empty():
    (decision,) = filter_of("approval_gate")(PLAN, ["a"], ANSWERS)
    assert decision == {
        "event_id": "E1",
        "approve": True,
        "why": decision["why"],
        "approver": "a",
        "is_trouble": False,
    }
    (blocked,) = filter_of("approval_gate")(PLAN, ["a"], ANSWERS, blocked=None, tried=[decision])
    assert not blocked["approve"]


def test_results_are_plain_and_can_be_written_as_json():
    view = View(dict(PLAN, hosts=View(PLAN["hosts"]), events=[View(one) for one in PLAN["events"]]))
    results = [
        filter_of("approval_gate")(view, ["a"], View(ANSWERS)),
        filter_of("batch_work")(view, "a", View(ANSWERS["a"]), View({}), NOW),
        filter_of("open_work")(view, "b", View(answer("b", entries=[View(entry("E0", "b"))])), NOW),
        filter_of("batch_troubles")(view, ["a"], [], View({}), View({})),
        filter_of("lease_verdict")(view, [View({"scope": "s", "host": "a"})], [View({"msg": "away"})]),
        filter_of("rolling_verdict")(view, [View({"host": "a", "why": "x"})], ["a"]),
        filter_of("open_entries")([View(entry("E0", "b"))], "b"),
    ]
    for result in results:
        assert json.loads(json.dumps(result)) == result


def is_template(text):
    """Whether Ansible would take braces in this text for a template."""
    try:
        from ansible.template import is_trusted_as_template
    except ImportError:
        return not hasattr(text, "__UNSAFE__")
    return is_trusted_as_template(text)


def test_what_the_service_sent_is_never_a_template():
    braces = "{{ lookup('pipe', 'id') }}"
    answers = fleet({"a": "0"}, event(braces, "a"), entries=[entry(braces, "a")])
    unmarked = json.loads(json.dumps(make(answers)))
    (decision,) = filter_of("approval_gate")(unmarked, ["a"], answers)
    work = filter_of("batch_work")(unmarked, "a", answers["a"])
    for text in (decision["event_id"], work["events"][0]["event_id"]):
        assert text == braces
        assert not is_template(text)


def test_an_error_that_is_not_about_the_input_is_not_hidden():
    def broken(_value):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _filters.as_filter("broken", broken)(1)


def test_what_is_plain_already_stays_as_it_is():
    assert _filters.plain({"a": [1, (2, {"b": None})], "c": "d"}) == {"a": [1, [2, {"b": None}]], "c": "d"}
