# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import re
import string
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.azops.maintenance.plugins.module_utils._client import MetadataClient
from ansible_collections.azops.maintenance.plugins.module_utils._document import (
    API_VERSIONS,
    Document,
    Event,
    clean_value,
    format_time,
    name_key,
    parse_document,
    parse_time,
    quote,
)
from ansible_collections.azops.maintenance.plugins.module_utils._errors import MaintenanceError
from ansible_collections.azops.maintenance.plugins.module_utils._selection import event_for

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))
NOW = datetime(2016, 9, 19, 18, 0, 0, tzinfo=timezone.utc)
PROPERTY = settings(
    max_examples=100, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)

DIFFERENT_TIMES = st.sampled_from(["", "Mon, 19 Sep 2016 18:29:47 GMT", "2016-09-19T18:29:47Z", "soon"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(10**400), 10**400), st.floats(), st.text(max_size=8)
)
# Text with lone surrogates is what json.loads makes of "\ud800".
ANY_TEXT = st.text(st.characters(), max_size=8) | st.sampled_from(["\ud800", "a\udfff", "\x00", "\x1b[2J", "{{ 1 }}"])
JSON_VALUES = st.recursive(
    SCALARS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=10,
)
EVENT_FIELDS = {
    "EventId": ANY_TEXT | JSON_VALUES,
    "EventType": st.sampled_from(["Freeze", "REBOOT", "Levitate"]) | JSON_VALUES,
    "EventStatus": st.sampled_from(["Scheduled", "started", "Completed"]) | JSON_VALUES,
    "EventSource": st.sampled_from(["Platform", "USER"]) | JSON_VALUES,
    "ResourceType": ANY_TEXT | JSON_VALUES,
    "Resources": st.lists(ANY_TEXT, max_size=3) | JSON_VALUES,
    "NotBefore": DIFFERENT_TIMES | ANY_TEXT | JSON_VALUES,
    "Description": ANY_TEXT | JSON_VALUES,
    "DurationInSeconds": st.integers(-2, 20) | JSON_VALUES,
    "Unheard": JSON_VALUES,
}
ODD_EVENTS = st.sets(st.sampled_from(sorted(EVENT_FIELDS))).flatmap(
    lambda names: st.fixed_dictionaries({name: EVENT_FIELDS[name] for name in sorted(names | {"EventId"})})
)
ODD_DOCUMENTS = st.fixed_dictionaries(
    {"DocumentIncarnation": JSON_VALUES, "Events": st.lists(ODD_EVENTS | JSON_VALUES, max_size=3) | JSON_VALUES}
)


def event_with(**fields):
    return parse_document({"DocumentIncarnation": 1, "Events": [dict({"EventId": "E1"}, **fields)]}).events[0]


def check_strict(value):
    """Only plain JSON, all the way down, that any encoder takes."""
    json.dumps(value, allow_nan=False).encode("ascii")
    json.dumps(value, ensure_ascii=False).encode("utf-8")


def is_number(value):
    return isinstance(value, int) and not isinstance(value, bool)


def check_document(document):
    assert isinstance(document, Document)
    assert document.incarnation is None or is_number(document.incarnation)
    for message in document.unreadable + document.oddities:
        assert isinstance(message, str) and len(message) < 400
        message.encode("utf-8")
    keys = [event.key for event in document.events]
    assert len(keys) == len(set(keys))
    for event in document.events:
        check_event(event)


def check_event(event):
    assert isinstance(event, Event)
    for text in (event.event_id, event.event_type, event.event_status):
        assert isinstance(text, str) and text.strip()
    for text in (event.event_source, event.resource_type, event.description):
        assert text is None or (isinstance(text, str) and text.strip())
    assert isinstance(event.resources, tuple) and all(isinstance(name, str) and name for name in event.resources)
    assert len(set(event.resource_keys)) == len(event.resources)
    assert event.not_before is None or event.not_before.tzinfo is timezone.utc
    assert event.duration_in_seconds is None or (
        is_number(event.duration_in_seconds) and event.duration_in_seconds >= 0
    )
    assert isinstance(event.unknown_fields, dict)
    check_strict(event_for(event, "web_0", NOW))


# The corpus


def test_the_corpus_has_at_least_sixty_documents():
    assert len(CORPUS) >= 60


@pytest.mark.parametrize("path", CORPUS, ids=[path.stem for path in CORPUS])
def test_a_document_of_the_corpus_is_understood_as_it_says(path, server, answer):
    case = json.loads(path.read_text(encoding="utf-8"))
    expected = case["expect"]
    body = case["body"] if isinstance(case["body"], str) else json.dumps(case["body"])
    reply = answer.of(200, body.encode(case.get("encoding", "utf-8")))
    server.expect("GET", "/metadata/scheduledevents?api-version=" + case["api_version"], reply)
    client = MetadataClient(server.url, case["api_version"], retry_for=0)
    try:
        if "error" in expected:
            with pytest.raises(MaintenanceError) as caught:
                client.read_document()
            assert caught.value.kind == expected["error"]
            assert len(str(caught.value)) < 600
            return
        document = client.read_document()
    finally:
        client.close()
    check_document(document)
    shown = [event_for(event, "web_0", NOW) for event in document.events]
    assert len(shown) == len(expected["events"])
    for event, wanted in zip(shown, expected["events"]):
        assert {name: event[name] for name in wanted} == wanted
    assert document.incarnation == expected["incarnation"]
    assert (len(document.unreadable), len(document.oddities)) == (expected["unreadable"], expected["oddities"])


# Whatever comes in


@PROPERTY
@given(JSON_VALUES | ODD_DOCUMENTS, st.sampled_from(API_VERSIONS))
def test_anything_gives_a_strict_document_or_our_own_error(value, api_version):
    try:
        document = parse_document(value, api_version)
    except MaintenanceError as error:
        assert error.kind == "document" and error.remedy
    else:
        check_document(document)


@PROPERTY
@given(ODD_EVENTS)
def test_an_odd_event_never_hides_a_good_one(odd):
    good = {"EventId": "the good one", "EventStatus": "Scheduled", "Resources": ["web_0"]}
    document = parse_document({"DocumentIncarnation": 1, "Events": [odd, good]})
    assert document.event("THE GOOD ONE").resources == ("web_0",)
    assert len(document.events) + len(document.unreadable) == 2


@PROPERTY
@given(st.text(max_size=40) | st.text(string.digits + " ,:-+TZMonSepGMT", max_size=40))
def test_any_text_is_a_time_or_a_value_error(text):
    try:
        moment = parse_time(text)
    except ValueError as error:
        assert "time" in str(error)
    else:
        assert moment.tzinfo is timezone.utc
        assert parse_time(format_time(moment)) == moment.replace(microsecond=0)


@PROPERTY
@given(st.datetimes(datetime(1970, 1, 2), datetime(8999, 12, 30)).map(lambda moment: moment.replace(microsecond=0)))
def test_times_survive_the_way_through_both_spellings(naive):
    moment = naive.replace(tzinfo=timezone.utc)
    assert parse_time(format_time(moment)) == moment
    month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][moment.month - 1]
    rfc_1123 = "Mon, {0:02d} {1} {2:04d} {3} GMT".format(moment.day, month, moment.year, moment.strftime("%H:%M:%S"))
    assert parse_time(rfc_1123) == moment


@PROPERTY
@given(JSON_VALUES)
def test_a_cleaned_value_is_strict_and_stays_as_it_is_when_cleaned_again(value):
    cleaned = clean_value(value)
    check_strict(cleaned)
    assert clean_value(cleaned) == cleaned


@PROPERTY
@given(JSON_VALUES)
def test_a_quote_is_short_and_printable(value):
    assert re.match(r"^[ -~]{1,120}$", quote(value))


@pytest.mark.parametrize("depth", [10, 100, 300, 480, 500, 900, 980, 990, 5000])
def test_a_field_of_any_depth_comes_out_shallow(depth):
    value = []
    for _level in range(depth):
        value = [value]
    document = parse_document({"DocumentIncarnation": 1, "Events": [{"EventId": "E1", "Deep": value}]})
    assert [event.event_id for event in document.events] == ["E1"]
    inner, levels = document.events[0].unknown_fields["Deep"], 0
    while isinstance(inner, list) and inner:
        inner, levels = inner[0], levels + 1
    assert levels == min(depth, 20)
    assert inner == [] or (isinstance(inner, str) and len(inner) <= 120)


# Names and ids without regard to case


@PROPERTY
@given(
    st.lists(st.text(string.ascii_letters + "_0123", min_size=1, max_size=5), unique_by=name_key, max_size=5), st.data()
)
def test_rank_is_the_place_in_resources_in_any_spelling(names, data):
    event = event_with(Resources=names)
    assert event.leader == (names[0] if names else None)
    assert event.resources == tuple(names)
    for place, name in enumerate(names):
        spelling = "".join(data.draw(st.sampled_from([letter.upper(), letter.lower()])) for letter in name)
        assert event.rank(spelling) == place
        assert event_for(event, spelling, NOW)["is_leader"] == (place == 0)
    assert event.rank("somebody-else") is None


def test_an_id_is_found_in_any_case_and_echoed_as_it_came():
    document = parse_document({"DocumentIncarnation": 1, "Events": [{"EventId": "aBc-DEF"}]})
    for spelling in ("abc-def", "ABC-DEF", "aBc-DEF"):
        assert document.event(spelling).event_id == "aBc-DEF"
    assert document.event("abc") is None


def test_the_same_event_in_two_spellings_is_one_event():
    listing = {"EventStatus": "Scheduled", "Resources": ["web_0"]}
    entries = [dict(listing, EventId="abc"), dict(listing, EventId="ABC")]
    document = parse_document({"DocumentIncarnation": 1, "Events": entries})
    assert [event.event_id for event in document.events] == ["abc"]
    assert document.unreadable == ()


def test_an_event_listed_twice_with_other_resources_is_reported():
    entries = [{"EventId": "abc", "Resources": ["web_0"]}, {"EventId": "ABC", "Resources": ["web_0", "web_1"]}]
    document = parse_document({"DocumentIncarnation": 1, "Events": entries})
    assert "listed twice" in document.unreadable[0]


def test_seconds_left_are_whole_and_turn_negative():
    event = event_with(NotBefore="Mon, 19 Sep 2016 18:00:10 GMT")
    assert event.seconds_left(NOW) == 10
    assert event.seconds_left(NOW + timedelta(milliseconds=1)) == 9
    assert event.seconds_left(NOW + timedelta(seconds=11)) == -1
    assert event_with(NotBefore="").seconds_left(NOW) is None


def test_messages_carry_nothing_of_the_service_unescaped():
    entry = {"EventId": "a\n\x1b[31mX", "NotBefore": "\x1b[2J", "DurationInSeconds": "\n"}
    document = parse_document({"DocumentIncarnation": "\x07", "Events": [entry, {"EventId": "\ud800\n"}]})
    assert len(document.oddities) == 3 and len(document.unreadable) == 1
    for message in document.oddities + document.unreadable:
        assert re.match(r"^[ -~]+$", message)
