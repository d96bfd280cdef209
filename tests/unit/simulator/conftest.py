# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulator whose clock stands still, and the two clients that are held against it.

The plain client is ``requests`` where it is installed (wherever ansible-core is) and ``urllib`` on a bare Python; it
reads the wire format strictly, as it is documented. The core client is the collection's own.
"""

import datetime
import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
SIMULATOR_FOLDER = os.path.join(ROOT, "roles", "simulator", "files")
if SIMULATOR_FOLDER not in sys.path:
    sys.path.insert(0, SIMULATOR_FOLDER)

import azops_simulator  # noqa: E402

try:
    import requests
except ImportError:
    requests = None  # type: ignore[assignment]

NEWEST = "2020-07-01"
# One for all: making one costs 20 ms on the newer Pythons, because it can also speak TLS.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
PLAIN = "requests" if requests is not None else "urllib"


class Answer(NamedTuple):
    """One HTTP answer, whoever fetched it."""

    status: int
    body: bytes
    headers: Dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body.decode("utf-8"))


class SeenEvent(NamedTuple):
    """One event as a client understood it."""

    event_id: str
    status: str
    type: str
    resources: List[str]
    not_before: Optional[float]
    description: Optional[str]
    source: Optional[str]
    duration: Optional[int]


class Seen(NamedTuple):
    """One document as a client understood it."""

    incarnation: int
    events: List[SeenEvent]

    @property
    def ids(self) -> List[str]:
        return [event.event_id for event in self.events]


class Refused(Exception):
    """A client was answered with an error."""

    def __init__(self, status: Optional[int]) -> None:
        Exception.__init__(self, "status {}".format(status))
        self.status = status


def fetch(
    url: str, method: str = "GET", body: Optional[bytes] = None, headers: Optional[Dict[str, str]] = None
) -> Answer:
    """One request, with exactly the headers given (by default the one that Azure requires)."""
    headers = {"Metadata": "true"} if headers is None else headers
    if requests is not None:
        with requests.Session() as session:
            session.trust_env = False
            found = session.request(method, url, data=body, headers=headers, timeout=10)
            return Answer(found.status_code, found.content, {k.lower(): v for k, v in found.headers.items()})
    request = urllib.request.Request(url, data=body, headers=headers, method=method)
    try:
        with OPENER.open(request, timeout=10) as response:
            return Answer(response.status, response.read(), {k.lower(): v for k, v in response.headers.items()})
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read(), {k.lower(): v for k, v in error.headers.items()})


def timestamp(text: str) -> Optional[float]:
    """RFC 1123, or ISO 8601 as in the preview; nothing once the event has started."""
    if not text:
        return None
    pattern = "%Y-%m-%dT%H:%M:%SZ" if text[4:5] == "-" else "%a, %d %b %Y %H:%M:%S GMT"
    moment = datetime.datetime.strptime(text, pattern)
    return (moment - datetime.datetime(1970, 1, 1)).total_seconds()


class PlainClient:
    """A client that anybody might write with the documentation at hand."""

    def __init__(self, url: str, version: str) -> None:
        self.root = url
        self.events_url = "{}/metadata/scheduledevents?api-version={}".format(url, version)

    def document(self) -> Seen:
        answer = fetch(self.events_url)
        if answer.status != 200:
            raise Refused(answer.status)
        value = answer.json
        assert isinstance(value["DocumentIncarnation"], int)
        return Seen(value["DocumentIncarnation"], [self._event(event) for event in value["Events"]])

    @staticmethod
    def _event(event: Dict[str, Any]) -> SeenEvent:
        assert event["ResourceType"] == "VirtualMachine"
        return SeenEvent(
            event["EventId"],
            event["EventStatus"],
            event["EventType"],
            [name.lstrip("_") for name in event["Resources"]],
            timestamp(event["NotBefore"]),
            event.get("Description"),
            event.get("EventSource"),
            event.get("DurationInSeconds"),
        )

    def approve(self, event_id: str) -> None:
        body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
        answer = fetch(self.events_url, "POST", body)
        if answer.status != 200:
            raise Refused(answer.status)

    def who_am_i(self) -> Dict[str, Any]:
        answer = fetch(self.root + "/metadata/instance/compute?api-version=2021-12-13&format=json")
        if answer.status != 200:
            raise Refused(answer.status)
        compute = answer.json
        return {
            "name": compute["name"],
            "update_domain": compute["platformUpdateDomain"],
            "fault_domain": compute["platformFaultDomain"],
            "zone": compute["zone"],
            "scale_set_name": compute["vmScaleSetName"],
            "scale_set_id": compute["virtualMachineScaleSet"]["id"],
            "placement_group_id": compute["placementGroupId"],
            "resource_id": compute["resourceId"],
            "location": compute["location"],
            "priority": compute["priority"],
            "computer_name": compute["osProfile"]["computerName"],
            "tags": {tag["name"]: tag["value"] for tag in compute["tagsList"]},
        }


class CoreClient:
    """The collection's own client, with its waiting cut short."""

    def __init__(self, url: str, version: str) -> None:
        from ansible_collections.azops.maintenance.plugins.module_utils import _client, _errors

        self._service_error = _errors.ServiceError
        self._client = _client.MetadataClient(endpoint=url, api_version=version, sleep=lambda _seconds: None)

    def _call(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except self._service_error as error:
            raise Refused(error.status) from error
        finally:
            self._client.close()

    def document(self) -> Seen:
        found = self._call(self._client.read_document)
        assert not found.unreadable
        events = []
        for event in found.events:
            moment = event.not_before
            if moment is not None:
                moment = (moment.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)).total_seconds()
            events.append(
                SeenEvent(
                    event.event_id,
                    event.event_status,
                    event.event_type,
                    list(event.resources),
                    moment,
                    event.description,
                    event.event_source,
                    event.duration_in_seconds,
                )
            )
        return Seen(found.incarnation, events)

    def approve(self, event_id: str) -> None:
        self._call(lambda: self._client.approve(event_id))

    def who_am_i(self) -> Dict[str, Any]:
        found = self._call(self._client.read_instance)
        return {key: value if value is not None else "" for key, value in found._asdict().items()}


CLIENTS = {PLAIN: PlainClient, "core": CoreClient}
Reader = Callable[..., Any]
MakeSimulator = Callable[..., azops_simulator.Simulator]


@pytest.fixture
def make_simulator() -> Iterator[MakeSimulator]:
    """Starts simulators whose clock stands still and which never say 429, unless told otherwise."""
    running: List[azops_simulator.Simulator] = []

    def make(topology: Any = None, **options: Any) -> azops_simulator.Simulator:
        options.setdefault("clock", azops_simulator.ManualClock())
        options.setdefault("rate_limit", 0)
        simulator = azops_simulator.Simulator(topology, **options)
        running.append(simulator.start())
        return simulator

    yield make
    for simulator in running:
        simulator.stop()


@pytest.fixture
def simulator(make_simulator: MakeSimulator) -> azops_simulator.Simulator:
    """vm0 to vm5 in one availability set with three update domains."""
    return make_simulator()


@pytest.fixture(params=sorted(CLIENTS))
def client(request: Any) -> Reader:
    """Makes a client of one kind for a VM: ``client(simulator, "vm0", version="2019-01-01")``."""

    def make(simulator: azops_simulator.Simulator, vm: str, version: str = NEWEST) -> Any:
        return CLIENTS[request.param](simulator.url_for(vm), version)

    return make


@pytest.fixture
def get() -> Callable[..., Answer]:
    """A raw request to a VM's metadata service: ``get(simulator, "vm0", "/metadata/versions")``."""

    def send(simulator: azops_simulator.Simulator, vm: str, path: str, **options: Any) -> Answer:
        return fetch(simulator.url_for(vm) + path, **options)

    return send


@pytest.fixture
def events(get: Callable[..., Answer]) -> Callable[..., Any]:
    """The document of a VM as JSON."""

    def read(simulator: azops_simulator.Simulator, vm: str = "vm0", version: str = NEWEST) -> Any:
        answer = get(simulator, vm, "/metadata/scheduledevents?api-version=" + version)
        assert answer.status == 200
        return answer.json

    return read


@pytest.fixture
def approve(get: Callable[..., Answer]) -> Callable[..., Answer]:
    """POST any body to a VM's events."""

    def send(simulator: azops_simulator.Simulator, vm: str, body: Any, version: str = NEWEST) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return get(simulator, vm, "/metadata/scheduledevents?api-version=" + version, method="POST", body=data)

    return send
