# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from datetime import datetime, timezone

import pytest

from ansible_collections.azops.maintenance.plugins.module_utils._document import parse_document
from ansible_collections.azops.maintenance.plugins.module_utils._selection import (
    Selection,
    event_for,
    selection_from,
)

DOCUMENT = parse_document(
    {
        "DocumentIncarnation": 1,
        "Events": [
            {
                "EventId": "A",
                "EventType": "Freeze",
                "EventStatus": "Scheduled",
                "EventSource": "Platform",
                "Resources": ["Web_0", "web_1"],
                "NotBefore": "Sun, 01 Mar 2026 12:15:00 GMT",
            },
            {
                "EventId": "b",
                "EventType": "Reboot",
                "EventStatus": "Started",
                "EventSource": "User",
                "Resources": ["db"],
            },
            {"EventId": "c", "EventType": "Levitate", "Resources": []},
        ],
    }
)


def ids(selection, vm_name="web_0"):
    return "".join(event.event_id for event in selection.select(DOCUMENT, vm_name))


@pytest.mark.parametrize(
    "conditions, wanted",
    [
        ({}, "Abc"),
        ({"event_ids": ("a", "B")}, "Ab"),
        ({"event_ids": ("x",)}, ""),
        ({"types": ("FREEZE", "levitate")}, "Ac"),
        ({"statuses": ("started",)}, "b"),
        ({"sources": ("platform", "user")}, "Ab"),
        ({"resources": ("WEB_1", "none")}, "A"),
        ({"resources": ("web_",)}, ""),
        ({"only_mine": True}, "A"),
        ({"types": ("Freeze", "Reboot"), "sources": ("User",)}, "b"),
        ({"types": ("Freeze",), "sources": ("User",)}, ""),
    ],
)
def test_every_condition_has_to_fit_without_regard_to_case(conditions, wanted):
    assert ids(Selection(**conditions)) == wanted


def test_mine_is_what_the_vm_itself_is_called():
    assert ids(Selection(only_mine=True), "DB") == "b"
    assert ids(Selection(only_mine=True), "web") == ""


def test_a_selection_is_made_from_the_options_that_a_module_has():
    assert selection_from({"event_ids": ["A"], "types": None, "endpoint": "auto"}) == Selection(event_ids=("A",))
    assert selection_from({"only_mine": True}) == Selection(only_mine=True)
    assert selection_from({}).is_empty
    assert selection_from({"event_ids": [], "only_mine": False}).is_empty
    assert not selection_from({"resources": ["a"]}).is_empty


def test_an_event_is_shown_with_what_it_means_to_the_vm():
    now = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc)
    shown = event_for(DOCUMENT.events[0], "WEB_1", now)
    assert shown["resources"] == ["Web_0", "web_1"]
    assert (shown["not_before"], shown["seconds_left"]) == ("2026-03-01T12:15:00Z", 900)
    assert (shown["hits_me"], shown["leader"], shown["is_leader"], shown["rank"]) == (True, "Web_0", False, 1)
    shown = event_for(DOCUMENT.events[2], "web_0", now)
    assert (shown["not_before"], shown["seconds_left"]) == (None, None)
    assert (shown["hits_me"], shown["leader"], shown["is_leader"], shown["rank"]) == (False, None, False, None)
