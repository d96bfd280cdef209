# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the core share: a clock that they move themselves, and a real HTTP server on loopback."""

import collections
import contextlib
import json
import socket
import struct
import threading
from datetime import datetime, timedelta, timezone

import pytest

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
INSTANCE = "/metadata/instance/compute?api-version=2021-12-13&format=json"

Request = collections.namedtuple("Request", "method target headers body connection")


class FakeClock:
    """Time that passes only when somebody sleeps or the test says so."""

    def __init__(self):
        self.elapsed = 0.0
        self.slept = []
        self.step = 0.0

    def monotonic(self):
        self.elapsed += self.step
        return self.elapsed

    def sleep(self, seconds):
        assert seconds >= 0
        self.slept.append(seconds)
        self.elapsed += seconds

    def now(self):
        return datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc) + timedelta(seconds=self.elapsed)


class Server:
    """Speaks just enough HTTP over a plain socket that every kind of broken answer can be sent.

    Tests either script it with expect(), and then every request must come exactly as said and all of them must
    come, or set respond to a function from the request to the answer.
    """

    def __init__(self):
        self.requests = []
        self.connections = 0
        self.problems = []
        self.respond = self._follow_script
        self._script = collections.deque()
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(8)
        self.port = self._listener.getsockname()[1]
        self.url = "http://127.0.0.1:{0}".format(self.port)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def expect(self, method, target, answer, body=None):
        self._script.append((method, target, body, answer))

    def expect_get(self, *answers):
        for answer in answers:
            self.expect("GET", EVENTS, answer)

    def posts(self):
        return [request for request in self.requests if request.method == "POST"]

    def approved_ids(self):
        return [json.loads(post.body.decode())["StartRequests"][0]["EventId"] for post in self.posts()]

    def stop(self):
        """Close the door: from now on every connection is refused."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        assert not self._thread.is_alive(), "the server of the test hangs"

    def verify(self):
        assert not self.problems
        assert not self._script, "expected but never asked: {0}".format(list(self._script))

    def _serve(self):
        while True:
            try:
                connection, _peer = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                self._converse(connection)

    def _converse(self, connection):
        with connection.makefile("rb") as source:
            while True:
                request = self._read_request(source)
                if request is None:
                    return
                self.requests.append(request)
                answer = self.respond(request)
                for part in answer.parts:
                    if callable(part):
                        part()
                    else:
                        connection.sendall(part)
                if answer.end == "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if answer.end != "keep":
                    return

    def _read_request(self, source):
        line = source.readline().decode("latin-1").rstrip("\r\n")
        if not line:
            return None
        method, target, _version = line.split(" ")
        headers = []
        while True:
            header = source.readline().decode("latin-1").rstrip("\r\n")
            if not header:
                break
            name, value = header.split(":", 1)
            headers.append((name.lower(), value.strip()))
        length = int(dict(headers).get("content-length", 0))
        return Request(method, target, headers, source.read(length), self.connections)

    def _follow_script(self, request):
        if not self._script:
            self.problems.append("not expected: {0} {1}".format(request.method, request.target))
            return Answer.of(400, {"error": "not expected"})
        method, target, body, answer = self._script.popleft()
        wanted = (method, target, body if body is not None else b"")
        if (request.method, request.target, request.body) != wanted:
            self.problems.append("{0} instead of {1}".format(request, wanted))
        return answer


class Answer:
    """Bytes to send, and what becomes of the connection: keep, close or reset."""

    def __init__(self, *parts, end="keep"):
        self.parts = parts
        self.end = end

    @classmethod
    def of(cls, status, body=b"", headers=(), end="keep"):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = ["HTTP/1.1 {0} Word".format(status), "Content-Length: {0}".format(len(content))]
        lines += ["{0}: {1}".format(name, value) for name, value in headers]
        return cls("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content, end=end)


class Azure:
    """One VM's metadata service, with a document that the test changes and approvals that it decides about."""

    def __init__(self, server):
        self.server = server
        self.url = server.url
        self.name = "web_0"
        self.incarnation = 1
        self.events = []
        self.raw = []
        self.get_answers = collections.deque()
        self.on_post = lambda event_id: None
        server.respond = self._respond

    def add(self, event_id="E1", **fields):
        event = {
            "EventId": event_id,
            "EventStatus": "Scheduled",
            "EventType": "Reboot",
            "ResourceType": "VirtualMachine",
            "Resources": ["web_0", "web_1"],
            "NotBefore": "Sun, 01 Mar 2026 12:15:00 GMT",
            "Description": "Host server is undergoing maintenance.",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
        event.update(fields)
        self.events.append(event)
        return event

    def remove(self, event_id):
        self.events = [event for event in self.events if event["EventId"].lower() != event_id.lower()]

    def start(self, event_id):
        for event in self.events:
            if event["EventId"].lower() == event_id.lower():
                event.update(EventStatus="Started", NotBefore="")

    def _respond(self, request):
        assert ("metadata", "true") in request.headers
        if request.method == "POST":
            assert request.target == EVENTS
            event_id = json.loads(request.body.decode())["StartRequests"][0]["EventId"]
            return self.on_post(event_id) or Answer.of(200)
        if request.target == INSTANCE:
            return Answer.of(200, {"name": self.name})
        assert request.target == EVENTS
        if self.get_answers:
            answer = self.get_answers.popleft()
            if answer is not None:
                return answer
        return Answer.of(200, {"DocumentIncarnation": self.incarnation, "Events": self.events + self.raw})


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def answer():
    return Answer


@pytest.fixture
def server():
    running = Server()
    yield running
    running.stop()
    running.verify()


@pytest.fixture
def azure(server):
    return Azure(server)
