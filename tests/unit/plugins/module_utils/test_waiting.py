# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest

from ansible_collections.azops.maintenance.plugins.module_utils._client import MetadataClient
from ansible_collections.azops.maintenance.plugins.module_utils._document import parse_document
from ansible_collections.azops.maintenance.plugins.module_utils._selection import Selection
from ansible_collections.azops.maintenance.plugins.module_utils._waiting import GONE_FOR, SLICE_SECONDS, Watch, wait

E1 = Selection(event_ids=("e1",))


def document(*events):
    return parse_document({"DocumentIncarnation": 1, "Events": list(events)})


EMPTY = document()
SCHEDULED = document({"EventId": "E1", "EventStatus": "Scheduled"})
STARTED = document({"EventId": "E1", "EventStatus": "Started"})
OTHER = document({"EventId": "E2", "EventStatus": "Scheduled"})
UNREADABLE = document({"EventId": None})
UNREADABLE_WITH_EVENT = document({"EventId": "E1", "EventStatus": "Started"}, {"EventId": None})


def judge(until, *readings):
    """Whether the condition is met at each of the moments."""
    watch = Watch(until)
    return [watch.is_met(read, tuple(E1.select(read, "web_0")), at) for at, read in readings]


def test_gone_needs_two_readings_five_seconds_apart():
    assert GONE_FOR == 5.0
    assert judge("gone", (0, EMPTY), (4.9, EMPTY), (5, EMPTY)) == [False, False, True]
    assert judge("gone", (100, OTHER), (105, EMPTY)) == [False, True]


def test_one_reading_is_never_enough_for_gone():
    assert judge("gone", (1000, EMPTY)) == [False]


def test_an_event_that_comes_back_starts_the_count_again():
    readings = [(0, EMPTY), (3, STARTED), (5, EMPTY), (9, EMPTY), (10, EMPTY)]
    assert judge("gone", *readings) == [False, False, False, False, True]


def test_an_unreadable_document_does_not_count_for_gone():
    assert judge("gone", (0, UNREADABLE), (6, UNREADABLE), (12, EMPTY), (13, UNREADABLE), (17, EMPTY)) == [
        False,
        False,
        False,
        False,
        True,
    ]


def test_an_event_that_comes_back_in_a_partly_unreadable_document_starts_the_count_again():
    assert judge("gone", (0, EMPTY), (3, UNREADABLE_WITH_EVENT), (6, EMPTY), (11, EMPTY)) == [False, False, False, True]


def test_an_event_has_started_when_it_says_so_or_is_gone():
    assert judge("started", (0, SCHEDULED), (1, STARTED)) == [False, True]
    assert judge("started", (0, SCHEDULED), (1, EMPTY)) == [False, True]
    assert judge("started", (0, UNREADABLE), (1, UNREADABLE_WITH_EVENT)) == [False, False]


def test_all_selected_events_must_have_started():
    both = document({"EventId": "E1", "EventStatus": "Started"}, {"EventId": "E2", "EventStatus": "Scheduled"})
    watch = Watch("started")
    assert not watch.is_met(both, both.events, 0)
    assert watch.is_met(both, both.events[:1], 0)


def test_an_event_appears_also_in_a_partly_unreadable_document():
    assert judge("appear", (0, EMPTY), (1, OTHER), (2, UNREADABLE), (3, UNREADABLE_WITH_EVENT)) == [
        False,
        False,
        False,
        True,
    ]


# Against a real service


@pytest.fixture
def waiting(azure, clock):
    """Wait on the VM web_0, on the test's clock; what happens at which second is the script."""
    client = MetadataClient(azure.url, retry_for=0, clock=clock.monotonic, sleep=clock.sleep)

    def run(until, seconds=60, script=None, **options):
        events = dict(script or {})

        def sleep(pause):
            clock.sleep(pause)
            for moment in sorted(events):
                if moment <= clock.elapsed:
                    events.pop(moment)()

        selection = options.pop("selection", E1)
        return wait(client, until, selection, seconds, clock=clock.monotonic, sleep=sleep, **options)

    yield run
    client.close()


def test_waiting_ends_as_soon_as_the_event_appears(waiting, azure, clock):
    progress = waiting("appear", script={3: lambda: azure.add("E1")})
    assert progress.met and progress.vm_name == "web_0" and progress.last_error is None
    assert [event.event_id for event in progress.events] == ["E1"]
    assert clock.elapsed == 3 and progress.reads == 4


def test_waiting_for_the_start_ends_with_the_start(waiting, azure, clock):
    azure.add("E1")
    assert waiting("started", script={2: lambda: azure.start("E1")}).met
    assert clock.elapsed == 2


def test_waiting_for_gone_takes_five_seconds_more(waiting, azure, clock):
    azure.add("E1", EventStatus="Started")
    progress = waiting("gone", script={4: lambda: azure.remove("E1")})
    assert progress.met and progress.events == ()
    assert clock.elapsed == 9


def test_the_first_documents_after_a_redeploy_may_be_empty(waiting, azure, clock):
    progress = waiting("gone", script={3: lambda: azure.add("E1"), 8: lambda: azure.remove("E1")})
    assert progress.met and clock.elapsed == 13


def test_a_wait_that_is_never_met_ends_in_time_and_shows_what_there_is(waiting, azure, clock):
    azure.add("E1")
    progress = waiting("gone", seconds=20)
    assert not progress.met and clock.elapsed <= 20
    assert [event.event_id for event in progress.events] == ["E1"]
    assert progress.reads == 21


def test_without_time_there_is_one_reading(waiting, azure, clock):
    azure.add("E1")
    progress = waiting("appear", seconds=0)
    assert progress.met and progress.reads == 1 and clock.slept == []
    assert not waiting("gone", seconds=0).met


@pytest.mark.parametrize("status", [400, 404, 429, 503])
def test_faults_are_waited_out(status, waiting, azure, answer, clock):
    azure.get_answers.extend([answer.of(status)] * 3)
    azure.add("E1")
    progress = waiting("appear")
    assert progress.met and progress.last_error is None and clock.elapsed == 3


def test_faults_do_not_count_for_gone(waiting, azure, answer, clock):
    azure.get_answers.extend([None] + [answer.of(503)] * 3 + [answer(end="reset")] * 3)
    progress = waiting("gone")
    assert progress.met and progress.reads == 2
    assert clock.elapsed == 7


def test_the_last_fault_is_told(waiting, azure, answer):
    azure.get_answers.extend([answer.of(503, {"error": "busy"})] * 10)
    progress = waiting("appear", seconds=3)
    assert not progress.met and progress.reads == 0
    assert '"busy"' in progress.last_error


def test_a_service_that_is_away_is_waited_for(azure, clock):
    azure.server.stop()
    client = MetadataClient(azure.url, retry_for=0, clock=clock.monotonic, sleep=clock.sleep)
    progress = wait(client, "appear", E1, 5, clock=clock.monotonic, sleep=clock.sleep)
    assert not progress.met and "does not look like an Azure VM" in progress.last_error
    assert clock.elapsed == 5


def test_an_unreadable_document_is_told(waiting, azure):
    azure.raw = [{"EventId": None}]
    progress = waiting("gone", seconds=10)
    assert not progress.met and progress.reads == 11
    assert "no usable EventId" in progress.last_error


def test_who_am_i_is_asked_until_it_is_answered_and_then_not_again(waiting, azure):
    azure.add("E1", Resources=["WEB_0"])
    assert waiting("gone", seconds=3, selection=Selection(only_mine=True)).events[0].event_id == "E1"
    assert [request.target.split("?")[0] for request in azure.server.requests].count("/metadata/instance/compute") == 1


def test_a_slice_is_longer_than_gone_takes():
    assert SLICE_SECONDS == 20 and SLICE_SECONDS > GONE_FOR
