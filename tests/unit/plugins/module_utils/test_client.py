# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import socket
import threading
import time

import pytest

from ansible_collections.azops.maintenance.plugins.module_utils import _client
from ansible_collections.azops.maintenance.plugins.module_utils._client import MetadataClient
from ansible_collections.azops.maintenance.plugins.module_utils._document import API_VERSIONS
from ansible_collections.azops.maintenance.plugins.module_utils._endpoint import Endpoint
from ansible_collections.azops.maintenance.plugins.module_utils._errors import (
    DocumentError,
    InputError,
    MaintenanceError,
    NotAzureError,
    RequestRefusedError,
    ServiceError,
)

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
INSTANCE = "/metadata/instance/compute?api-version=2021-12-13&format=json"
EMPTY = {"DocumentIncarnation": 1, "Events": []}


@pytest.fixture
def connect(server, clock):
    """Make clients of the server that live on the test's clock."""
    made = []

    def make(**options):
        options.setdefault("endpoint", server.url)
        made.append(MetadataClient(clock=clock.monotonic, sleep=clock.sleep, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def ok(answer):
    return answer.of(200, EMPTY)


@pytest.fixture
def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def deaf_port():
    """A port on which no connection is ever made: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _number in range(4)]
        for caller in waiting:
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
        for caller in waiting:
            caller.close()


# What is sent


def test_reading_sends_the_header_that_azure_wants_and_nothing_of_a_proxy(server, connect, ok):
    server.expect_get(ok)
    assert connect().read_document().incarnation == 1
    headers = dict(server.requests[0].headers)
    assert headers["metadata"] == "true"
    assert headers["host"] == "127.0.0.1:{0}".format(server.port)
    assert set(headers) == {"metadata", "host", "accept-encoding"}


@pytest.mark.parametrize("version", API_VERSIONS)
def test_every_api_version_is_asked_for_as_it_is_called(version, server, connect, ok):
    server.expect("GET", "/metadata/scheduledevents?api-version=" + version, ok)
    connect(api_version=version).read_document()


def test_the_newest_api_version_is_the_default():
    assert API_VERSIONS[-1] == "2020-07-01"
    assert MetadataClient()._api_version == "2020-07-01"


def test_an_approval_is_a_post_with_the_id_exactly_as_given(server, connect, answer):
    event_id = 'aBc"\u00e4\r\n-1'
    body = b'{"StartRequests": [{"EventId": "aBc\\"\\u00e4\\r\\n-1"}]}'
    server.expect("POST", EVENTS, answer.of(200, b"whatever, it is not documented"), body=body)
    assert connect().approve(event_id) is None
    headers = dict(server.requests[0].headers)
    assert headers["metadata"] == "true"
    assert headers["content-type"] == "application/json"
    assert json.loads(server.requests[0].body.decode()) == {"StartRequests": [{"EventId": event_id}]}


def test_an_approval_may_be_answered_with_an_empty_body(server, connect, answer):
    server.expect("POST", EVENTS, answer.of(200), body=b'{"StartRequests": [{"EventId": "E1"}]}')
    connect().approve("E1")


def test_who_am_i_is_asked_of_the_instance_document(server, connect, answer):
    server.expect("GET", INSTANCE, answer.of(200, {"name": "Web_0", "platformUpdateDomain": "4"}))
    instance = connect().read_instance()
    assert (instance.name, instance.update_domain) == ("Web_0", "4")


def test_a_path_prefix_comes_before_every_path(server, connect, ok, answer):
    server.expect("GET", "/vm/web_0" + EVENTS, ok)
    server.expect("GET", "/vm/web_0" + INSTANCE, answer.of(200, {"name": "web_0"}))
    client = connect(endpoint=server.url + "/vm/web_0/")
    client.read_document()
    client.read_instance()


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_no_proxy_is_used_whatever_the_environment_says(name, server, connect, ok, monkeypatch, closed_port):
    monkeypatch.setenv(name, "http://127.0.0.1:{0}".format(closed_port))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.expect_get(ok)
    connect(retry_for=0).read_document()
    assert server.requests[0].target == EVENTS
    assert "x-forwarded-for" not in dict(server.requests[0].headers)


# What comes back


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status, server, connect, answer):
    server.expect_get(answer.of(status, headers=[("Location", server.url + "/elsewhere")]))
    with pytest.raises(RequestRefusedError) as caught:
        connect().read_document()
    assert caught.value.status == status
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 405, 418])
def test_a_refused_request_is_not_sent_again(status, server, connect, answer, clock):
    server.expect_get(answer.of(status, {"error": "Bad request"}))
    with pytest.raises(RequestRefusedError) as caught:
        connect().read_document()
    assert caught.value.as_result()["http_status"] == status
    assert '"Bad request"' in str(caught.value) and "api_version" in caught.value.remedy
    assert clock.slept == []


def test_an_unknown_version_shows_the_versions_that_the_service_offers(server, connect, answer):
    offer = {"error": "Bad request. api-version is invalid", "newest-versions": ["2020-07-01", "2019-08-01"]}
    server.expect("GET", "/metadata/scheduledevents?api-version=latest", answer.of(400, offer))
    with pytest.raises(RequestRefusedError) as caught:
        connect(api_version="latest").read_document()
    assert "api-version is invalid" in str(caught.value)
    assert '"2020-07-01", "2019-08-01"' in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b'{"error": null, "newest-versions": null}',
        b'{"error": "x", "newest-versions": {"a": 1}}',
        b'{"error": "x", "newest-versions": 5}',
        b'{"error": {"deep": ["\\u001b[2J\\n"]}}',
        b'{"error": "\\ud800"}',
        b"\xff\xfe",
        b"[" * 100000,
        b'{"error": "' + b"x" * 5000 + b'"}',
    ],
)
def test_any_body_of_a_refusal_makes_a_short_and_safe_message(body, server, connect, answer):
    server.expect_get(answer.of(400, body))
    with pytest.raises(RequestRefusedError) as caught:
        connect().read_document()
    message = str(caught.value)
    assert len(message) < 400 and message.isprintable()
    message.encode("utf-8")


def test_a_chunked_answer_is_put_together(server, connect, answer):
    text = json.dumps(EMPTY).encode()
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (text[:7], text[7:])) + b"0\r\n\r\n"
    server.expect_get(answer(head + chunks), answer.of(200, EMPTY))
    client = connect()
    assert client.read_document().incarnation == 1
    client.read_document()
    assert server.connections == 1


def test_an_answer_without_a_length_ends_with_the_connection(server, connect, answer, ok):
    text = json.dumps(dict(EMPTY, DocumentIncarnation=7)).encode()
    server.expect_get(answer(b"HTTP/1.0 200 OK\r\n\r\n" + text, end="close"), ok)
    client = connect()
    assert client.read_document().incarnation == 7
    assert client.read_document().incarnation == 1


def test_an_answer_in_many_parts_is_put_together(server, connect, answer):
    text = json.dumps(EMPTY).encode()
    head = "HTTP/1.1 200 OK\r\nContent-Length: {0}\r\n\r\n".format(len(text)).encode()
    parts = [head] + [text[place : place + 1] for place in range(len(text))]
    server.expect_get(answer(*parts))
    assert connect().read_document().incarnation == 1


@pytest.mark.parametrize("length", [True, False])
def test_an_answer_without_end_is_given_up(length, server, connect, answer, monkeypatch):
    monkeypatch.setattr(_client, "LARGEST_ANSWER", 100000)
    head = b"HTTP/1.1 200 OK\r\n" + (b"Content-Length: 999999999\r\n" if length else b"") + b"\r\n"
    server.expect_get(answer(head, *[b" " * 60000] * 2, end="close"))
    with pytest.raises(DocumentError) as caught:
        connect().read_document()
    assert "100000" in str(caught.value)


def test_an_answer_may_be_as_large_as_four_megabytes():
    assert _client.LARGEST_ANSWER == 4 * 1024 * 1024


def test_an_unchanged_answer_is_not_parsed_again(server, connect, answer, ok):
    changed = dict(EMPTY, DocumentIncarnation=2)
    server.expect_get(ok, ok, answer.of(200, changed), answer.of(200, ["wrong"]), answer.of(200, changed))
    client = connect()
    first = client.read_document()
    assert client.read_document() is first
    second = client.read_document()
    assert second.incarnation == 2
    with pytest.raises(DocumentError):
        client.read_document()
    assert client.read_document() is second


# Faults that pass


@pytest.mark.parametrize("status", [404, 410, 429, 500, 502, 503, 504])
def test_a_passing_status_is_tried_again(status, server, connect, answer, ok, clock):
    server.expect_get(answer.of(status), answer.of(status, b"<html>"), ok)
    assert connect().read_document().incarnation == 1
    assert len(clock.slept) == 2
    assert 0.25 <= clock.slept[0] <= 0.5 and 0.5 <= clock.slept[1] <= 1.0


BROKEN = {
    "an empty body": [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"],
    "a blank body": [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\r\n"],
    "a body that is not JSON": [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{"],
    "a body that is cut off": [b'HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"Events": []}'],
    "a whole document that is cut off by its length": [b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"Events": []}'],
    "chunks that are cut off": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{}"],
    "chunks without their end": [b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n{"Events": []}\r\n'],
    "chunks of a bad size": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"],
    "a head that is cut off": [b"HTTP/1.1 200 OK\r\nContent-Le"],
    "a status line that is none": [b"220 mail.example.com ESMTP\r\n\r\n"],
    "a status that is none": [b"HTTP/1.1 ok\r\n\r\n"],
    "an unknown protocol": [b"HTTP/9.9 200 OK\r\n\r\n{}"],
    "a head without end": [b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"],
    "a line without end": [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000 + b"\r\n\r\n"],
    "nothing at all": [],
}


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("parts", list(BROKEN.values()), ids=list(BROKEN))
def test_a_broken_answer_is_asked_for_again_on_another_connection(parts, end, server, connect, answer, ok):
    server.expect_get(answer(*parts, end=end), ok)
    assert connect().read_document().incarnation == 1
    assert server.connections == 2


@pytest.mark.parametrize("value", ["7", " 7 "])
def test_retry_after_is_respected(value, server, connect, answer, ok, clock):
    server.expect_get(answer.of(429, headers=[("Retry-After", value)]), ok)
    connect().read_document()
    assert clock.slept == [7.0]


@pytest.mark.parametrize("value", ["", "soon", "-5", "1e3", "\u00b2", "nan", "Mon, 19 Sep 2016 18:29:47 GMT", "9" * 40])
def test_a_retry_after_that_is_no_number_of_seconds_is_passed_over(value, server, connect, answer, ok, clock):
    server.expect_get(answer.of(503, headers=[("Retry-After", value)]), ok)
    connect().read_document()
    assert len(clock.slept) == 1 and clock.slept[0] <= 0.5


def test_a_retry_after_beyond_the_budget_ends_the_wait_at_once(server, connect, answer, clock):
    server.expect_get(answer.of(429, headers=[("Retry-After", "71")]))
    with pytest.raises(ServiceError) as caught:
        connect(retry_for=60).read_document()
    assert caught.value.status == 429 and clock.slept == []


def test_the_retries_end_with_the_budget(server, connect, answer, clock):
    server.respond = lambda request: answer.of(410)
    with pytest.raises(ServiceError) as caught:
        connect().read_document()
    assert 50 <= clock.elapsed <= 70
    assert 8 <= len(server.requests) <= 20
    assert "{0} times in a row".format(len(server.requests)) in str(caught.value)
    assert "HTTP status 410" in str(caught.value) and caught.value.status == 410
    assert caught.value.remedy


def test_the_pauses_grow_to_ten_seconds_and_are_not_all_the_same(server, connect, answer, clock):
    server.respond = lambda request: answer.of(500)
    with pytest.raises(ServiceError):
        connect(retry_for=600).read_document()
    assert max(clock.slept) <= 10.0
    assert min(clock.slept[8:]) >= 5.0
    assert len(set(clock.slept)) > len(clock.slept) / 2


def test_without_a_budget_there_is_one_attempt(server, connect, answer, clock):
    server.expect_get(answer.of(503, {"error": "busy"}))
    with pytest.raises(ServiceError) as caught:
        connect(retry_for=0).read_document()
    assert "failed 1 time:" in str(caught.value) and '"busy"' in str(caught.value)
    assert clock.slept == []


def test_an_empty_answer_is_called_by_its_name(server, connect, answer):
    server.expect_get(answer.of(200))
    with pytest.raises(ServiceError) as caught:
        connect(retry_for=0).read_document()
    assert "an empty answer" in str(caught.value) and caught.value.status == 200


def test_an_approval_is_tried_again_like_everything_else(server, connect, answer):
    body = b'{"StartRequests": [{"EventId": "E1"}]}'
    for reply in (answer.of(500), answer(end="reset"), answer.of(200)):
        server.expect("POST", EVENTS, reply, body=body)
    connect().approve("E1")


def test_a_service_that_stops_answering_after_it_has_answered_is_no_stranger(server, connect, ok, clock):
    server.expect_get(ok)
    client = connect()
    client.read_document()
    client.close()
    server.stop()
    with pytest.raises(ServiceError) as caught:
        client.read_document()
    assert "refused" in str(caught.value)
    assert clock.elapsed > 50


# Timeouts


def test_the_timeouts_are_those_of_the_design():
    assert (_client.CONNECT_TIMEOUT, _client.READ_TIMEOUT, _client.FIRST_CALL_READ_TIMEOUT) == (2.0, 10.0, 120.0)


@pytest.mark.parametrize("first_call, seconds", [(False, 10.0), (True, 120.0)])
def test_a_connection_reads_with_the_read_timeout(first_call, seconds, server, connect, ok):
    server.expect_get(ok)
    client = connect(first_call=first_call)
    client.read_document()
    assert client._connection.sock.gettimeout() == seconds


def test_a_connection_made_anew_reads_with_the_read_timeout_too(server, connect, answer, ok):
    last = answer.of(200, EMPTY, headers=[("Connection", "close")], end="close")
    server.expect_get(last, ok)
    client = connect()
    client.read_document()
    client.read_document()
    assert client._connection.sock.gettimeout() == 10.0


def test_silence_is_a_passing_fault(server, connect, answer, ok, monkeypatch):
    monkeypatch.setattr(_client, "READ_TIMEOUT", 0.05)
    answered = threading.Event()
    server.expect_get(answer(lambda: answered.wait(5), end="close"), ok)
    client = connect()

    def be_patient_from_now_on(_seconds):
        client._read_timeout = 30.0
        answered.set()

    monkeypatch.setattr(client, "_sleep", be_patient_from_now_on)
    assert client.read_document().incarnation == 1


def test_a_service_that_stays_silent_is_given_up(server, connect, answer, monkeypatch):
    monkeypatch.setattr(_client, "READ_TIMEOUT", 0.05)
    answered = threading.Event()
    server.expect_get(answer(lambda: answered.wait(5), end="close"))
    with pytest.raises(ServiceError) as caught:
        connect(retry_for=0).read_document()
    answered.set()
    assert "timed out" in str(caught.value)


def test_a_drip_is_cut_off_by_the_clock(server, connect, answer, clock):
    def a_second_passes():
        clock.elapsed += 1.0
        time.sleep(0.002)

    drip = [b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"]
    for _byte in range(50):
        drip += [b" ", a_second_passes]
    server.expect_get(answer(*drip, end="close"))
    with pytest.raises(ServiceError) as caught:
        connect(retry_for=0).read_document()
    assert "longer than 10 s" in str(caught.value)


# Not Azure


def test_nothing_on_the_port_means_not_azure_and_is_not_tried_again(connect, clock, closed_port):
    with pytest.raises(NotAzureError) as caught:
        connect(endpoint="http://127.0.0.1:{0}".format(closed_port)).read_document()
    assert "does not look like an Azure VM" in str(caught.value)
    assert "127.0.0.1:{0}".format(closed_port) in str(caught.value) and "refused" in str(caught.value)
    assert caught.value.kind == "not_azure" and "firewall" in caught.value.remedy
    assert clock.slept == []


def test_no_answer_to_the_connection_means_not_azure(connect, monkeypatch, deaf_port):
    monkeypatch.setattr(_client, "CONNECT_TIMEOUT", 0.05)
    started = time.monotonic()
    with pytest.raises(NotAzureError) as caught:
        connect(endpoint="http://127.0.0.1:{0}".format(deaf_port)).read_document()
    assert "timed out" in str(caught.value)
    assert time.monotonic() - started < _client.READ_TIMEOUT


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "%"])
def test_a_host_that_cannot_exist_gives_our_own_error(host, connect):
    with pytest.raises((NotAzureError, InputError)):
        connect(endpoint="http://{0}/".format(host), retry_for=0).read_document()


def test_auto_goes_on_to_the_leased_address_and_stays_there(server, connect, ok, monkeypatch, closed_port):
    client = connect()
    client._candidates = [Endpoint("127.0.0.1", closed_port), Endpoint("127.0.0.1", server.port, from_dhcp=True)]
    server.expect_get(ok, ok)
    client.read_document()
    client.close()
    client.read_document()
    assert client.endpoint == Endpoint("127.0.0.1", server.port, from_dhcp=True)
    assert client.endpoint.is_azure


def test_auto_names_every_address_that_it_tried(connect, closed_port, deaf_port, monkeypatch):
    monkeypatch.setattr(_client, "CONNECT_TIMEOUT", 0.05)
    client = connect()
    client._candidates = [Endpoint("127.0.0.1", closed_port), Endpoint("127.0.0.1", deaf_port, from_dhcp=True)]
    with pytest.raises(NotAzureError) as caught:
        client.read_document()
    assert str(closed_port) in str(caught.value) and str(deaf_port) in str(caught.value)


def test_auto_reads_the_lease_files_it_is_given(tmp_path):
    (tmp_path / "lease").write_text("OPTION_245=7f000001\n")
    client = MetadataClient(lease_files=[str(tmp_path / "*")])
    assert [candidate.host for candidate in client._candidates] == ["169.254.169.254", "127.0.0.1"]


# One connection, and not too many requests


def test_many_polls_share_one_connection(server, connect, ok):
    server.expect_get(*[ok] * 20)
    client = connect()
    for _poll in range(20):
        client.read_document()
    assert server.connections == 1


def test_a_connection_that_the_server_closed_is_replaced_without_a_fault(server, connect, answer, ok, clock):
    closing = answer.of(200, EMPTY, headers=[("Connection", "close")], end="close")
    server.expect_get(closing, closing, ok)
    client = connect(retry_for=0)
    for _poll in range(3):
        client.read_document()
    assert server.connections == 3
    assert clock.slept == []


def test_a_connection_that_the_server_closed_without_a_word_is_replaced(server, connect, answer, ok):
    server.expect_get(answer.of(200, EMPTY, end="close"), ok)
    client = connect(retry_for=0)
    client.read_document()
    deadline = time.monotonic() + 5
    while not _has_ended(client) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert client.read_document().incarnation == 1
    assert server.connections == 2


def _has_ended(client):
    client._connection.sock.setblocking(False)
    try:
        return client._connection.sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    finally:
        client._connection.sock.settimeout(10.0)


def test_a_client_can_be_used_again_after_it_was_closed(server, connect, ok):
    server.expect_get(ok, ok)
    client = connect()
    client.close()
    client.read_document()
    client.close()
    client.close()
    client.read_document()
    assert server.connections == 2


def test_no_second_sees_more_requests_than_azure_allows(server, connect, ok, clock):
    sent = []

    def note(request):
        sent.append(clock.elapsed)
        return ok

    server.respond = note
    client = connect()
    for _poll in range(30):
        client.read_document()
    assert all(later - earlier >= 1.0 for earlier, later in zip(sent, sent[4:]))
    assert clock.elapsed == pytest.approx(7.0)


def test_retries_count_against_the_rate_as_well(server, connect, answer, ok, clock, monkeypatch):
    monkeypatch.setattr(_client, "_backoff", lambda attempts: 0.0)
    sent = []

    def note(request):
        sent.append(clock.elapsed)
        return answer.of(503) if len(sent) < 12 else ok

    server.respond = note
    connect().read_document()
    assert all(later - earlier >= 1.0 for earlier, later in zip(sent, sent[4:]))


def test_a_slow_poll_is_not_slowed_further(server, connect, ok, clock):
    server.expect_get(*[ok] * 8)
    client = connect()
    for _poll in range(8):
        client.read_document()
        clock.elapsed += 1.0
    assert clock.slept == []


def test_every_error_says_what_to_do():
    for error in (NotAzureError("x."), ServiceError("x."), RequestRefusedError("x."), DocumentError("x.")):
        assert isinstance(error, MaintenanceError)
        assert error.remedy and str(error) == "x. " + error.remedy
        assert error.as_result()["msg"] == str(error)
        assert error.as_result()["error_kind"] == error.kind
