# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The watcher's loop: poll, compare, ask for hooks, act alone where it may, tell, publish."""

import syslog
import time
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Dict, List, Optional

from azops_core._audit import log_line
from azops_core._client import MetadataClient
from azops_core._document import Document, Event
from azops_core._errors import MaintenanceError
from azops_core._hold import held_by
from azops_core._policy import approve_at, decide

from . import ACTOR, VERSION
from .config import GONE, SCHEDULED, Config, Paths, Secrets
from .hooks import APPROVED, DONE, HELD, LEFT_ALONE, answer, ask, is_waiting
from .knowledge import Asked, Change, Knowledge, has_doubts, load, observe, save
from .notify import Courier, notices_for, without_old_news
from .publish import health_before, public_state, publish

PUBLISH_EVERY = 10.0
RETRY_FOR_ONE_POLL = 20.0
RETRY_HOOKS_AFTER = 10.0


class Watcher:
    """Watches the events of the VM that it runs on. Faults around it are said once and waited out."""

    def __init__(
        self,
        paths: Paths,
        config: Config,
        secrets: Secrets,
        mode: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._paths = paths
        self._config = config
        self._mode = mode
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._knowledge = load(paths.state)
        self._saved: Optional[Knowledge] = self._knowledge
        self._client = MetadataClient(
            config.endpoint,
            config.api_version,
            first_call=self._knowledge.vm is None,
            retry_for=RETRY_FOR_ONE_POLL if mode == "timer" else 0,
            clock=monotonic,
            sleep=sleep,
        )
        self._courier = Courier(config, secrets, self._say)
        self._vm: Optional[str] = None
        self._document: Optional[Document] = None
        self._health = health_before(paths)
        self._hold: Optional[str] = None
        self._faults: Dict[str, str] = {}
        if self._health.last_error is not None:
            self._faults["metadata service"] = self._health.last_error
        self._retry_at: Dict[str, float] = {}
        self._published: Any = None
        self._published_at = float("-inf")

    def poll(self) -> None:
        """Look once, and do what follows from it."""
        document = self._read()
        if document is not None and (document is not self._document or has_doubts(self._knowledge)):
            self._compare(document)
            self._document = document
        self._hold = held_by(self._paths.hold)
        self._about("hold", self._hold and "held by {0}: no hooks, no approval".format(self._hold))
        if self._hold is None and (self._knowledge.wanted or self._knowledge.asked or self._knowledge.tracked):
            self._act()
        if self._knowledge.outbox:
            self._keep(outbox=tuple(self._courier.step(list(self._knowledge.outbox), self._clock())))
        self._save()
        self._publish()

    def once(self) -> bool:
        """What a timer starts: one look, a second one where an event may be gone, and everything due is sent."""
        self.poll()
        while has_doubts(self._knowledge) and self._health.last_error is None:
            self._sleep(5.1)
            self.poll()
        self._keep(outbox=tuple(self._courier.finish(list(self._knowledge.outbox), self._clock)))
        self._save()
        self._publish()
        return self._health.last_error is None

    def run(self, keep_running: Callable[[], bool], alive: Callable[[], None]) -> None:
        """Poll until told otherwise, on a steady beat."""
        next_poll = self._monotonic()
        while keep_running():
            self.poll()
            alive()
            next_poll = max(next_poll + self._config.poll_seconds, self._monotonic())
            self._sleep(max(0.0, next_poll - self._monotonic()))

    def _read(self) -> Optional[Document]:
        try:
            if self._vm is None:
                self._vm = self._client.read_instance().name
            document = self._client.read_document()
        except MaintenanceError as error:
            self._health = self._health._replace(errors=self._health.errors + 1, last_error=str(error))
            self._about("metadata service", str(error))
            return None
        self._health = self._health._replace(last_success=self._clock(), last_error=None)
        self._about("metadata service", None)
        self._about("document", " ".join(document.unreadable) or None)
        return document

    def _compare(self, document: Document) -> None:
        knowledge, changes = observe(self._knowledge, document, str(self._vm), self._monotonic())
        self._knowledge = knowledge
        for change in changes:
            self._announce(change)

    def _announce(self, change: Change) -> None:
        event_id = str(change.event["event_id"])
        self._say(
            "Event {0} of type {1} is {2}".format(event_id, change.event["event_type"], change.status),
            {
                "event_id": event_id,
                "event_type": change.event["event_type"],
                "status": change.status,
                "not_before": change.event["not_before"],
                "resources": change.event["resources"],
            },
        )
        outdated = [wanted for wanted in self._knowledge.wanted if wanted.event["event_id"] == event_id]
        outbox = without_old_news(list(self._knowledge.outbox), event_id, change.status)
        outbox += notices_for(self._config, change.status, change.event, str(self._vm), self._clock())
        self._keep(
            wanted=(*(wanted for wanted in self._knowledge.wanted if wanted not in outdated), change),
            outbox=tuple(outbox),
        )

    def _act(self) -> None:
        for asked in self._knowledge.asked:
            self._take_answer(asked)
        for change in self._knowledge.wanted:
            self._ask(change)
        for key in list(self._knowledge.tracked):
            self._approve(key)

    def _take_answer(self, asked: Asked) -> None:
        event_id = str(asked.event["event_id"])
        if is_waiting(self._paths, event_id, asked.status):
            return
        result = answer(self._paths, event_id, asked.status)
        if result is None:
            return
        self._keep(asked=tuple(other for other in self._knowledge.asked if other != asked))
        failed = result.outcome != DONE and "{0} ({1})".format(result.outcome, result.reason)
        self._about("hooks for event {0}, {1}".format(event_id, asked.status), failed or None)
        if result.outcome in (HELD, LEFT_ALONE) or (failed and asked.status == GONE):
            self._retry_at[event_id] = self._monotonic() + RETRY_HOOKS_AFTER
            self._keep(wanted=(*self._knowledge.wanted, Change(asked.status, asked.event)))
        elif asked.act and not failed:
            self._knowledge = self._knowledge.marked(event_id, drained=True)

    def _ask(self, change: Change) -> None:
        """Ask for the hooks of a change, unless they are to wait for the event's turn, or not to run at all."""
        event_id = str(change.event["event_id"])
        if self._retry_at.get(event_id, float("-inf")) > self._monotonic():
            return None
        act = False
        if self._config.act_alone and change.status == SCHEDULED:
            event = self._document.event(event_id) if self._document is not None else None
            if event is None or not decide(self._config.policy, event).drains:
                return self._forget(change)
            if not self._is_our_turn(event) and not self._must_drain_now(event):
                return None
            act = True
        self._leave_request(change.status, change.event, act)
        if "requests" in self._faults:
            return None
        self._forget(change)
        return self._keep(asked=(*self._knowledge.asked, Asked(change.status, change.event, act)))

    def _leave_request(self, phase: str, event: Dict[str, Any], act: bool) -> None:
        try:
            ask(self._paths, phase, event, str(self._vm), act, sorted(self._knowledge.tracked))
        except (MaintenanceError, OSError) as error:
            return self._about("requests", str(error))
        return self._about("requests", None)

    def _approve(self, key: str) -> None:
        """Approve an event for which this VM is drained, or needs no drain, if it may be approved from here alone."""
        tracked = self._knowledge.tracked[key]
        event = self._document.event(key) if self._document is not None else None
        if not self._config.act_alone or tracked.approved or tracked.status != SCHEDULED or event is None:
            return
        decision = decide(self._config.policy, event)
        if not decision.approves or (decision.drains and not tracked.drained):
            return
        if len(event.resources) > 1 and not self._config.approve_shared_events:
            return
        now = self._now()
        allowed_at = approve_at(self._config.policy.approve_between, event, now, timedelta(seconds=self._config.margin))
        if allowed_at > now or not self._is_our_turn(event):
            return
        self._send_approval(event)

    def _send_approval(self, event: Event) -> None:
        try:
            self._client.approve(event.event_id)
        except MaintenanceError as error:
            return self._about("approval", str(error))
        self._about("approval", None)
        self._say("Approved event {0}".format(event.event_id), {"actor": ACTOR, "event_id": event.event_id})
        tracked = self._knowledge.tracked[event.key]
        self._knowledge = self._knowledge.marked(event.event_id, approved=True)
        return self._leave_request(APPROVED, tracked.event, act=True)

    def _is_our_turn(self, event: Event) -> bool:
        """All VMs of a scope see the same events: those before ours, and those under way, come first."""
        others = [other for other in self._events() if other.key != event.key]
        return not any(other.event_status == "Started" or _place(other) < _place(event) for other in others)

    def _must_drain_now(self, event: Event) -> bool:
        left = event.seconds_left(self._now())
        return left is None or left <= self._config.hook_timeout + self._config.margin

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), timezone.utc)

    def _events(self) -> List[Event]:
        return list(self._document.events) if self._document is not None else []

    def _forget(self, change: Change) -> None:
        self._keep(wanted=tuple(other for other in self._knowledge.wanted if other != change))

    def _keep(self, **parts: Any) -> None:
        self._knowledge = self._knowledge._replace(**parts)

    def _save(self) -> None:
        if self._knowledge is self._saved or self._knowledge == self._saved:
            return None
        try:
            save(self._paths.state, self._knowledge)
        except MaintenanceError as error:
            return self._about("state", str(error))
        self._saved = self._knowledge
        return self._about("state", None)

    def _publish(self) -> None:
        now = self._monotonic()
        shown = (self._knowledge, self._hold, self._health.last_error)
        if shown == self._published and now - self._published_at < PUBLISH_EVERY:
            return None
        state = public_state(self._knowledge, self._health, self._hold, self._mode)
        try:
            publish(self._paths, state, self._clock())
        except OSError as error:
            return self._about("public state", str(error))
        self._published, self._published_at = shown, now
        return self._about("public state", None)

    def _about(self, subject: str, problem: Optional[str]) -> None:
        """Say a problem when it comes, when it changes, and when it is over; not once a second."""
        before = self._faults.get(subject)
        if problem == before:
            return
        if problem is None:
            del self._faults[subject]
            self._say("The {0} is fine again".format(subject), {})
        else:
            self._faults[subject] = problem
            if before is None:
                self._say("The {0}: {1}".format(subject, problem), {}, syslog.LOG_WARNING)

    def _say(self, message: str, facts: Dict[str, Any], priority: int = syslog.LOG_NOTICE) -> None:
        log_line(message, dict(facts, version=VERSION), priority, identifier=ACTOR)


def _place(event: Event) -> Any:
    """The order in which events are taken, the same on every VM."""
    return (event.not_before or datetime.max.replace(tzinfo=timezone.utc), event.key)
