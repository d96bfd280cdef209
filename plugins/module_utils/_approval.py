# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Approving events: refuse before anything is sent, send, and read again what came of it."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from ._audit import log_line
from ._client import MetadataClient
from ._document import STARTED, Document, Event, format_time, name_key
from ._errors import DocumentError, MaintenanceError, RequestRefusedError
from ._journal import Journal, Subject
from ._selection import Selection

APPROVED = "approved"
ALREADY_APPROVED = "already_approved"
ALREADY_STARTED = "already_started"
GONE = "gone"
WOULD_APPROVE = "would_approve"
REFUSED = "refused"
OUTCOMES = (APPROVED, ALREADY_APPROVED, ALREADY_STARTED, GONE, WOULD_APPROVE, REFUSED)


class Outcome(NamedTuple):
    """What became of the wish to approve one event."""

    event_id: str
    outcome: str
    reason: Optional[str] = None
    event_type: Optional[str] = None
    resources: Sequence[str] = ()
    start_pending: bool = False

    @property
    def is_unexplained(self) -> bool:
        """Whether an event is missing that this VM has never approved."""
        return self.outcome == GONE and self.reason is not None

    def as_dict(self) -> Dict[str, Any]:
        return dict(self._asdict(), resources=list(self.resources))


class Guard(NamedTuple):
    """What must be true of an event for this VM to approve it."""

    expect_resources: Optional[Sequence[str]] = None
    require_mine: bool = False
    require_leader: bool = False
    max_resources: Optional[int] = None
    held_by: Optional[str] = None
    missing_ok: bool = False

    def objection(self, event: Event, vm_name: str) -> Optional[str]:
        """Why the event must not be approved; None if it may."""
        rank = event.rank(vm_name)
        if self.held_by is not None:
            return "{0} is held: {1}; remove that file when it may go ahead".format(vm_name, self.held_by)
        if self.expect_resources is not None and {name_key(name) for name in self.expect_resources} != set(
            event.resource_keys
        ):
            hit, expected = _names(event.resources), _names(self.expect_resources)
            return "it hits {0}, not {1} as expected; drain every VM that it hits first".format(hit, expected)
        if self.require_mine and rank is None:
            return "it does not hit {0} but {1}".format(vm_name, _names(event.resources))
        if self.require_leader and rank != 0:
            return "{0} is not its leader, {1} is; approve it there".format(vm_name, event.leader or "nobody")
        if self.max_resources is not None and len(event.resources) > self.max_resources:
            return "it hits {0} VMs, more than {1}".format(len(event.resources), self.max_resources)
        return None


class Approver:
    """Approves events from one VM."""

    def __init__(self, client: MetadataClient, journal: Journal, vm_name: str, actor: str) -> None:
        self._client = client
        self._journal = journal
        self._vm_name = vm_name
        self._actor = actor

    def approve(self, selection: Selection, guard: Guard, dry_run: bool) -> List[Outcome]:
        """Approve the selected events: all of them, or none if one of them has to be refused."""
        document = self._client.read_document()
        outcomes = [self._before_sending(event, guard) for event in selection.select(document, self._vm_name)]
        outcomes += self._missing(selection, document)
        if dry_run or any(outcome.outcome == REFUSED for outcome in outcomes):
            return outcomes
        if not guard.missing_ok and any(outcome.is_unexplained for outcome in outcomes):
            return outcomes
        wanted = [outcome for outcome in outcomes if outcome.outcome == WOULD_APPROVE]
        if not wanted:
            return outcomes
        self._journal.check_writable()
        wanted_ids = [outcome.event_id for outcome in wanted]
        failures = {event.event_id: self._send(event) for event in document.events if event.event_id in wanted_ids}
        after = self._read_again()
        return [
            self._after_sending(outcome, failures[outcome.event_id], after) if outcome in wanted else outcome
            for outcome in outcomes
        ]

    def _before_sending(self, event: Event, guard: Guard) -> Outcome:
        outcome = Outcome(event.event_id, WOULD_APPROVE, None, event.event_type, event.resources)
        if event.event_status == STARTED:
            return outcome._replace(outcome=ALREADY_STARTED)
        entry = self._journal.find(event.event_id, self._vm_name)
        if entry is not None and entry.approved_at is not None:
            return outcome._replace(
                outcome=ALREADY_APPROVED,
                reason="approved at {0} by {1}".format(entry.approved_at, entry.approved_by),
                start_pending=True,
            )
        objection = guard.objection(event, self._vm_name)
        return outcome if objection is None else outcome._replace(outcome=REFUSED, reason=objection)

    def _missing(self, selection: Selection, document: Document) -> List[Outcome]:
        wanted = {name_key(event_id): event_id for event_id in selection.event_ids}
        missing = [event_id for event_id in wanted.values() if document.event(event_id) is None]
        if missing and document.unreadable:
            raise DocumentError(
                "Whether event {0} is gone cannot be said: {1}".format(missing[0], " ".join(document.unreadable))
            )
        return [Outcome(event_id, GONE, self._why_missing(event_id)) for event_id in missing]

    def _why_missing(self, event_id: str) -> Optional[str]:
        entry = self._journal.find(event_id, self._vm_name)
        was_approved = entry is not None and entry.approved_at is not None
        return None if was_approved else "it is over, was cancelled, or the id is wrong"

    def _send(self, event: Event) -> Optional[MaintenanceError]:
        try:
            self._client.approve(event.event_id)
        except MaintenanceError as error:
            self._log("Could not approve", event)
            return error
        subject = Subject(
            event.event_id, self._vm_name, event.event_type, event.resources, format_time(event.not_before)
        )
        self._log("Approved", event)
        self._journal.note_approval(subject, self._actor)
        return None

    def _log(self, what: str, event: Event) -> None:
        log_line(
            "{0} event {1} ({2})".format(what, event.event_id, event.event_type),
            {"actor": self._actor, "event_id": event.event_id, "resources": list(event.resources), "vm": self._vm_name},
        )

    def _read_again(self) -> Optional[Document]:
        try:
            return self._client.read_document()
        except MaintenanceError:
            return None

    def _after_sending(
        self, wanted: Outcome, failure: Optional[MaintenanceError], after: Optional[Document]
    ) -> Outcome:
        event = after.event(wanted.event_id) if after is not None else None
        is_gone = after is not None and event is None and not after.unreadable
        has_started = event is not None and event.event_status == STARTED
        if failure is None:
            return wanted._replace(
                outcome=APPROVED,
                start_pending=not is_gone and not has_started,
                reason=None if after is not None else "the service took it, but could not be read again",
            )
        if is_gone:
            return wanted._replace(outcome=GONE)
        if has_started:
            return wanted._replace(outcome=ALREADY_STARTED)
        reason = failure.problem.rstrip(".")
        if not isinstance(failure, RequestRefusedError):
            reason += "; it may have been taken all the same, and approving it again does no harm"
        return wanted._replace(outcome=REFUSED, reason=reason)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "nobody"
