# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The client of the metadata service inside a VM: events, approval, who am I."""

import collections
import http.client
import json
import random
import select
import time
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, TypeVar

from ._document import NEWEST_API_VERSION, Document, parse_document
from ._endpoint import AUTO, LEASE_FILES, Endpoint, candidate_endpoints
from ._errors import DocumentError, NotAzureError, RequestRefusedError, ServiceError
from ._instance import Instance, parse_instance

CONNECT_TIMEOUT = 2.0
READ_TIMEOUT = 10.0
FIRST_CALL_READ_TIMEOUT = 120.0
RETRY_FOR = 70.0
REQUESTS_PER_SECOND = 4
LARGEST_ANSWER = 4 * 1024 * 1024
SLOWEST_BACKOFF = 10.0
INSTANCE_PATH = "/metadata/instance/compute?api-version=2021-12-13&format=json"
EVENTS_PATH = "/metadata/scheduledevents?api-version={0}"

Answer = TypeVar("Answer")


class _PassingFault(Exception):
    """A fault of one attempt that another attempt may not meet."""

    def __init__(self, problem: str, status: Optional[int] = None, retry_after: float = 0.0) -> None:
        super().__init__(problem)
        self.status = status
        self.retry_after = retry_after


class MetadataClient:
    """Talks to one VM's metadata service over one kept-alive connection, and never through a proxy."""

    def __init__(
        self,
        endpoint: str = AUTO,
        api_version: str = NEWEST_API_VERSION,
        first_call: bool = False,
        retry_for: float = RETRY_FOR,
        lease_files: Sequence[str] = LEASE_FILES,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._candidates = candidate_endpoints(endpoint, lease_files)
        self._events_path = EVENTS_PATH.format(api_version)
        self._api_version = api_version
        self._read_timeout = FIRST_CALL_READ_TIMEOUT if first_call else READ_TIMEOUT
        self._retry_for = retry_for
        self._clock = clock
        self._sleep = sleep
        self._connection: Optional[http.client.HTTPConnection] = None
        self._was_reached = False
        self._sent: Deque[float] = collections.deque(maxlen=REQUESTS_PER_SECOND)
        self._last_body = b""
        self._last_document: Optional[Document] = None

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint in use: the first candidate until one has answered."""
        return self._candidates[0]

    def read_document(self) -> Document:
        """The events that this VM sees now; an unchanged answer is not parsed again."""
        return self._request("GET", self._events_path, None, self._understand_document)

    def read_instance(self) -> Instance:
        """Who this VM is."""
        return self._request("GET", INSTANCE_PATH, None, lambda body: parse_instance(_json_value(body)))

    def approve(self, event_id: str) -> None:
        """Tell Azure to go ahead with an event, for all its VMs. What came of it is in the next document."""
        body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode("ascii")
        self._request("POST", self._events_path, body, lambda _undocumented: None)

    def close(self) -> None:
        """Let the connection go; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _understand_document(self, body: bytes) -> Document:
        if self._last_document is None or body != self._last_body:
            self._last_document = parse_document(_json_value(body), self._api_version)
            self._last_body = body
        return self._last_document

    def _request(self, method: str, path: str, body: Optional[bytes], understand: Callable[[bytes], Answer]) -> Answer:
        give_up_at = self._clock() + self._retry_for
        attempts = 0
        while True:
            attempts += 1
            try:
                return understand(self._exchange(method, path, body))
            except _PassingFault as fault:
                self.close()
                pause = max(fault.retry_after, _backoff(attempts))
                if self._clock() + pause > give_up_at:
                    raise ServiceError(
                        "The metadata service at {0} failed {1} {2}: {3}.".format(
                            self.endpoint.url, attempts, "time" if attempts == 1 else "times in a row", fault
                        ),
                        status=fault.status,
                    ) from None
                self._sleep(pause)

    def _exchange(self, method: str, path: str, body: Optional[bytes]) -> bytes:
        connection = self._connected()
        self._respect_rate_limit()
        read_by = self._clock() + self._read_timeout
        try:
            connection.request(method, self.endpoint.prefix + path, body, _headers(body))
            response = connection.getresponse()
            answer = self._read(response, read_by)
        except (OSError, http.client.HTTPException) as error:
            raise _PassingFault(_describe(error)) from None
        self._check_status(response, answer)
        if method == "GET" and not answer.strip():
            raise _PassingFault("an empty answer", response.status)
        return answer

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is not None and _is_alive(self._connection):
            return self._connection
        self.close()
        failures: List[str] = []
        for candidate in self._candidates:
            connection = http.client.HTTPConnection(candidate.host, candidate.port, timeout=CONNECT_TIMEOUT)
            try:
                connection.connect()
            except (OSError, UnicodeError) as error:
                connection.close()
                failures.append("{0}: {1}".format(candidate.url, _describe(error)))
                continue
            connection.sock.settimeout(self._read_timeout)
            self._connection = connection
            self._candidates = [candidate]
            self._was_reached = True
            return connection
        if self._was_reached:
            raise _PassingFault("; ".join(failures))
        raise NotAzureError(
            "No metadata service answers ({0}): this does not look like an Azure VM.".format("; ".join(failures))
        )

    def _respect_rate_limit(self) -> None:
        if len(self._sent) == REQUESTS_PER_SECOND:
            wait = self._sent[0] + 1.0 - self._clock()
            if wait > 0:
                self._sleep(wait)
        self._sent.append(self._clock())

    def _read(self, response: http.client.HTTPResponse, read_by: float) -> bytes:
        parts: List[bytes] = []
        size = 0
        while True:
            part = response.read1(65536)
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size > LARGEST_ANSWER:
                self.close()
                raise DocumentError("The metadata service sent more than {0} bytes.".format(LARGEST_ANSWER))
            if self._clock() > read_by:
                raise _PassingFault("the answer took longer than {0:.0f} s".format(self._read_timeout))
        if response.length:
            raise _PassingFault("the answer was cut off")
        response.close()
        return b"".join(parts)

    def _check_status(self, response: http.client.HTTPResponse, answer: bytes) -> None:
        status = response.status
        if status == 200:
            return
        problem = "HTTP status {0}{1}".format(status, _error_text(answer))
        if status in (404, 410, 429) or status >= 500:
            raise _PassingFault(problem, status, _seconds(response.getheader("Retry-After")))
        self.close()
        raise RequestRefusedError(
            "The metadata service at {0} refused the request: {1}.".format(self.endpoint.url, problem), status=status
        )


def _is_alive(connection: http.client.HTTPConnection) -> bool:
    """Whether a kept connection can be used again: once the server has closed it, there is an end to read."""
    return connection.sock is not None and not select.select([connection.sock], [], [], 0)[0]


def _headers(body: Optional[bytes]) -> Dict[str, str]:
    headers = {"Metadata": "true"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    return headers


def _json_value(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _PassingFault("an answer that is not JSON ({0})".format(_describe(error)), 200) from None


def _error_text(answer: bytes) -> str:
    """The service's own words, made safe for a message."""
    try:
        error = json.loads(answer.decode("utf-8"))
        words = [str(error["error"])] + [str(version) for version in error.get("newest-versions", [])[:5]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return " ({0})".format(", ".join(json.dumps(word[:100]) for word in words))


def _seconds(retry_after: Optional[str]) -> float:
    text = (retry_after or "").strip()
    return min(float(text), RETRY_FOR) if text.isdecimal() and len(text) < 6 else 0.0


def _backoff(attempts: int) -> float:
    return min(SLOWEST_BACKOFF, 0.25 * 2 ** min(attempts, 10)) * random.uniform(0.5, 1.0)


def _describe(error: BaseException) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__
