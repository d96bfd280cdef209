# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Notifications: a webhook and an AWX launch, at least once, with patience across restarts."""

import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from azops_core._document import format_time
from azops_core._journal import utc_now

from . import VERSION
from .config import Config, Secrets
from .hooks import request_key

SECONDS_PER_RANK = 30
RANKS_THAT_SEND = 3
FIRST_RETRY = 5.0
SLOWEST_RETRY = 300.0
LONGEST_PAUSE = SLOWEST_RETRY + 1.0  # what is due later was put off by a clock that has jumped back
GIVE_UP_AFTER = 24 * 3600.0
TIMEOUT = 10.0
LONGEST_DELIVERY = 3 * TIMEOUT
WEBHOOK, AWX = "webhook", "awx"


class Refused(Exception):
    """The receiver said no in a way that trying again does not change."""


class Notice(NamedTuple):
    """One thing to tell one receiver."""

    key: str
    channel: str
    status: str
    event: Dict[str, Any]
    vm: str
    created_at: float
    due_at: float
    attempts: int = 0

    @property
    def is_first_in_line(self) -> bool:
        return self.event.get("rank") == 0


def notices_for(config: Config, status: str, event: Dict[str, Any], vm: str, now: float) -> List[Notice]:
    """What to send about one change. The leader sends at once, the next two only if the change is still news then."""
    rank = int(event.get("rank") or 0)
    if rank >= RANKS_THAT_SEND:
        return []
    channels = []
    if config.webhook_url and status in config.webhook_statuses:
        channels.append(WEBHOOK)
    if config.awx_launch_url and status in config.awx_statuses:
        channels.append(AWX)
    key = request_key(str(event["event_id"]), status)
    due_at = now + rank * SECONDS_PER_RANK
    return [Notice(key, channel, status, event, vm, now, due_at) for channel in channels]


def without_old_news(outbox: List[Notice], event_id: str, status: str) -> List[Notice]:
    """After a change: drop what lower ranks were about to say of the status before."""
    news = request_key(event_id, status)
    event = news.rsplit(":", 1)[0]
    return [
        notice
        for notice in outbox
        if notice.is_first_in_line or notice.attempts or notice.key == news or notice.key.rsplit(":", 1)[0] != event
    ]


class Courier:
    """Delivers one notice at a time beside the polling, so that a receiver that hangs delays nothing."""

    def __init__(self, config: Config, secrets: Secrets, say: Callable[[str, Dict[str, Any]], None]) -> None:
        self._config = config
        self._secrets = secrets
        self._say = say
        self._thread: Optional[threading.Thread] = None
        self._under_way: Optional[Notice] = None
        self._problem: Optional[Exception] = None
        self._started_at = 0.0

    def step(self, outbox: List[Notice], now: float) -> List[Notice]:
        """Look after the delivery under way, start the next one that is due; the outbox afterwards."""
        if self._thread is not None and self._thread.is_alive():
            if time.monotonic() - self._started_at < LONGEST_DELIVERY:
                return outbox
            self._problem = TimeoutError("no answer within {0:.0f} s".format(LONGEST_DELIVERY))
        if self._thread is not None:
            outbox = self._settle(outbox, now)
        due = [notice for notice in outbox if notice.due_at <= now or notice.due_at > now + LONGEST_PAUSE]
        if due:
            self._under_way = due[0]
            self._started_at = time.monotonic()
            self._thread = threading.Thread(target=self._deliver, args=(due[0],), daemon=True)
            self._thread.start()
        return outbox

    def finish(self, outbox: List[Notice], clock: Callable[[], float]) -> List[Notice]:
        """Try everything that is due once, and wait for it."""
        for _number in range(len(outbox) + 1):
            outbox = self.step(outbox, clock())
            if self._thread is None:
                break
            self._thread.join(LONGEST_DELIVERY)
        return outbox

    def _settle(self, outbox: List[Notice], now: float) -> List[Notice]:
        notice, problem = self._under_way, self._problem
        self._thread = self._under_way = self._problem = None
        if notice is None or notice not in outbox:
            return outbox
        rest = [other for other in outbox if other != notice]
        facts = {"id": notice.key, "channel": notice.channel, "attempts": notice.attempts + 1}
        if problem is None:
            self._say("Sent the notice {0} to the {1}".format(notice.key, notice.channel), facts)
            return rest
        facts["problem"] = str(problem)
        if isinstance(problem, Refused) or now - notice.created_at > GIVE_UP_AFTER:
            self._say("Gave up the notice {0} to the {1}".format(notice.key, notice.channel), facts)
            return rest
        if notice.attempts == 0:
            self._say("Could not send the notice {0} to the {1} yet".format(notice.key, notice.channel), facts)
        pause = min(SLOWEST_RETRY, FIRST_RETRY * 2 ** min(notice.attempts, 10))
        return [*rest, notice._replace(attempts=notice.attempts + 1, due_at=now + pause)]

    def _deliver(self, notice: Notice) -> None:
        try:
            if notice.channel == WEBHOOK:
                send_webhook(self._config, self._secrets, notice)
            else:
                launch_awx(self._config, self._secrets, notice)
        except Exception as error:  # a notice must never end the watcher
            self._problem = error


def send_webhook(config: Config, secrets: Secrets, notice: Notice) -> None:
    """POST the notice, signed over its raw body."""
    import hashlib
    import hmac
    import json

    body = json.dumps(
        {
            "id": notice.key,
            "time": format_time(utc_now()),
            "status": notice.status,
            "vm": notice.vm,
            "event": notice.event,
        }
    ).encode("ascii")
    headers = {}
    if secrets.webhook_secret:
        digest = hmac.new(secrets.webhook_secret.encode("utf-8"), body, hashlib.sha256).hexdigest()
        headers["X-Hub-Signature-256"] = "sha256=" + digest
    if secrets.webhook_token:
        headers["Authorization"] = "Bearer " + secrets.webhook_token
    post(str(config.webhook_url), body, headers, config.ca_file)


def launch_awx(config: Config, secrets: Secrets, notice: Notice) -> None:
    """Launch the job template with the event's id as the one answer of its survey."""
    import json

    answers = {"maintenance_event_id": notice.event["event_id"]}
    body = json.dumps({"extra_vars": answers, "limit": config.awx_limit}).encode("ascii")
    headers = {"Authorization": "Bearer {0}".format(secrets.awx_token)} if secrets.awx_token else {}
    said = post(str(config.awx_launch_url), body, headers, config.ca_file)
    try:
        ignored = json.loads(said.decode("utf-8")).get("ignored_fields")
    except (ValueError, AttributeError):
        raise Refused("the controller's answer is not understood") from None
    if ignored:
        raise Refused(
            "the job was launched, but the controller ignored {0}: let the template ask for its limit"
            " and have a survey with maintenance_event_id".format(", ".join(sorted(ignored)))
        )


def post(url: str, body: bytes, headers: Dict[str, str], ca_file: Optional[str]) -> bytes:
    """One POST, TLS verified, no proxy, no redirect. Raises Refused for what another try does not change."""
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    host = str(parts.hostname)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        import ssl

        context = ssl.create_default_context(cafile=ca_file)
        connection = http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT)
    target = (parts.path or "/") + ("?" + parts.query if parts.query else "")
    headers = dict(headers, **{"Content-Type": "application/json", "User-Agent": "azops-watcher/" + VERSION})
    try:
        connection.request("POST", target, body, headers)
        response = connection.getresponse()
        said = response.read(1024 * 1024)
    finally:
        connection.close()
    if 200 <= response.status < 300:
        return said
    problem = "{0} answered with HTTP status {1}".format(host, response.status)
    if response.status in (408, 425, 429) or response.status >= 500:
        raise OSError(problem)
    raise Refused(problem)
