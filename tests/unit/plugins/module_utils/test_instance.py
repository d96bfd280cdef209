# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.azops.maintenance.plugins.module_utils._errors import DocumentError, MaintenanceError
from ansible_collections.azops.maintenance.plugins.module_utils._instance import parse_instance

SCALE_SET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/web"
FULL = {
    "name": "web_0",
    "resourceId": SCALE_SET + "/virtualMachines/0",
    "osProfile": {"computerName": "web000000"},
    "location": "westeurope",
    "zone": "2",
    "priority": "Spot",
    "platformUpdateDomain": "3",
    "platformFaultDomain": "1",
    "vmScaleSetName": "web",
    "virtualMachineScaleSet": {"id": SCALE_SET},
    "placementGroupId": "group",
    "tagsList": [{"name": "role", "value": "web"}, {"name": "empty", "value": ""}],
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def test_a_full_answer_is_understood():
    instance = parse_instance(FULL)
    assert dict(instance._asdict()) == {
        "name": "web_0",
        "resource_id": SCALE_SET + "/virtualMachines/0",
        "computer_name": "web000000",
        "location": "westeurope",
        "zone": "2",
        "priority": "Spot",
        "update_domain": "3",
        "fault_domain": "1",
        "scale_set_name": "web",
        "scale_set_id": SCALE_SET,
        "placement_group_id": "group",
        "tags": {"role": "web", "empty": ""},
    }


def test_what_does_not_apply_is_none_whether_empty_null_or_absent():
    empty = dict.fromkeys(FULL, "")
    for value in (dict(empty, name="a"), dict(dict.fromkeys(FULL), name="a"), {"name": "a"}):
        instance = parse_instance(value)
        assert set(instance[1:-1]) == {None}
        assert instance.tags == {}


def test_update_domain_zero_is_kept_also_as_a_number():
    assert parse_instance({"name": "a", "platformUpdateDomain": "0"}).update_domain == "0"
    assert parse_instance({"name": "a", "platformUpdateDomain": 0, "zone": 2}).update_domain == "0"
    assert parse_instance({"name": "a", "platformUpdateDomain": True}).update_domain is None


@pytest.mark.parametrize("value", [None, [], "web_0", 1, {}, {"name": ""}, {"name": None}, {"name": 7}, {"name": " "}])
def test_an_answer_without_a_name_is_refused(value):
    with pytest.raises(DocumentError) as caught:
        parse_instance(value)
    assert caught.value.remedy


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(JSON_VALUES | st.fixed_dictionaries(dict.fromkeys(FULL, JSON_VALUES)))
def test_anything_gives_strict_types_or_our_own_error(value):
    try:
        instance = parse_instance(value)
    except MaintenanceError:
        return
    assert all(item is None or isinstance(item, str) for item in instance[:-1])
    assert all(isinstance(name, str) and isinstance(text, str) for name, text in instance.tags.items())
    json.dumps(instance._asdict(), ensure_ascii=False).encode("utf-8")
