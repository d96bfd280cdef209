# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What to do about an event: ordered rules, the first that fits decides."""

import fnmatch
import re
from datetime import datetime, timedelta
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from ._document import EVENT_SOURCES, EVENT_TYPES, Event, name_key
from ._errors import InputError

STRICTEST_FIRST = ("ignore", "observe", "drain", "drain_and_approve", "approve")
DRAINING_ACTIONS = ("drain", "drain_and_approve")
APPROVING_ACTIONS = ("drain_and_approve", "approve")
UNKNOWN_TYPE = "Unknown"
RULE_KEYS = ("name", "types", "sources", "resources", "shorter_than", "action")
WINDOW = re.compile(r"^([01]\d|2[0-3]):([0-5]\d)\s*-\s*([01]\d|2[0-3]):([0-5]\d)$", re.ASCII)


class Rule(NamedTuple):
    """One rule; an empty condition fits every event."""

    name: str
    action: str
    types: Tuple[str, ...] = ()
    sources: Tuple[str, ...] = ()
    resources: Tuple[str, ...] = ()
    shorter_than: Optional[int] = None

    def fits(self, event: Event) -> bool:
        event_type = event.event_type if event.event_type in EVENT_TYPES else UNKNOWN_TYPE
        return (
            (not self.types or event_type in self.types)
            and (not self.sources or event.event_source in self.sources)
            and (not self.resources or any(self._names(key) for key in event.resource_keys))
            and (
                self.shorter_than is None
                or (event.duration_in_seconds is not None and event.duration_in_seconds < self.shorter_than)
            )
        )

    def _names(self, resource_key: str) -> bool:
        return any(fnmatch.fnmatchcase(resource_key, name_key(pattern)) for pattern in self.resources)


class Window(NamedTuple):
    """A time of day, in UTC, in which events may be approved; it may pass midnight."""

    opens: timedelta
    closes: timedelta

    def is_open(self, now: datetime) -> bool:
        since_opening = (_time_of_day(now) - self.opens) % timedelta(days=1)
        return since_opening < (self.closes - self.opens) % timedelta(days=1)

    def next_opening(self, now: datetime) -> datetime:
        return now + (self.opens - _time_of_day(now)) % timedelta(days=1)


class Policy(NamedTuple):
    """The user's rules, then the built-in ones."""

    rules: Tuple[Rule, ...]
    approve_between: Optional[Window] = None


class Decision(NamedTuple):
    """What is to be done about an event, and why."""

    action: str
    rule: str
    warning: Optional[str]

    @property
    def drains(self) -> bool:
        return self.action in DRAINING_ACTIONS

    @property
    def approves(self) -> bool:
        return self.action in APPROVING_ACTIONS


UNKNOWN_TYPE_RULE = Rule("unknown type", "drain")
DEFAULT_RULES = (
    Rule("no interruption", "approve", shorter_than=1),
    Rule("short freeze", "approve", types=("Freeze",), shorter_than=10),
    Rule("Spot eviction", "drain", types=("Preempt",)),
    Rule("interruption", "drain_and_approve", types=("Reboot", "Redeploy", "Freeze", "Terminate")),
    UNKNOWN_TYPE_RULE,
)


def decide(policy: Policy, event: Event) -> Decision:
    """The action of the first rule that fits."""
    rule = next(rule for rule in policy.rules if rule.fits(event))
    warning = None
    if rule is UNKNOWN_TYPE_RULE:
        warning = "Event {0} is of the unknown type {1!r}: it will be drained for but not approved.".format(
            event.event_id, event.event_type
        )
    return Decision(rule.action, rule.name, warning)


def strictest(actions: Iterable[str]) -> str:
    """The action for an event whose VMs have different policies."""
    return min(actions, key=STRICTEST_FIRST.index)


def approve_at(window: Optional[Window], event: Event, now: datetime, margin: timedelta) -> datetime:
    """When an event may be approved: in the window, unless Azure would start before it opens."""
    if window is None or window.is_open(now):
        return now
    opening = window.next_opening(now)
    return opening if event.not_before is not None and opening < event.not_before - margin else now


def parse_policy(value: Any) -> Policy:
    """Understand what the user wrote: nothing, a list of rules, or rules with approve_between."""
    if value is None or value == "":
        value = {}
    if isinstance(value, list):
        value = {"rules": value}
    if not isinstance(value, dict):
        raise _wrong("The policy", "must be a list of rules, or a dictionary with rules and approve_between", value)
    _known_keys("The policy", value, ("rules", "approve_between"))
    rules = [] if value.get("rules") is None else value["rules"]
    if not isinstance(rules, list):
        raise _wrong("The policy", "key 'rules' must be a list", rules)
    own_rules = tuple(_parse_rule(number, rule) for number, rule in enumerate(rules, 1))
    return Policy(own_rules + DEFAULT_RULES, _parse_window(value.get("approve_between")))


def _parse_rule(number: int, value: Any) -> Rule:
    where = "Rule {0} of the policy".format(number)
    if not isinstance(value, dict):
        raise _wrong(where, "must be a dictionary", value)
    if value.get("name"):
        where += " ({0})".format(value["name"])
    _known_keys(where, value, RULE_KEYS)
    action = value.get("action")
    if action not in STRICTEST_FIRST:
        raise _wrong(where, "key 'action' must be one of {0}".format(", ".join(STRICTEST_FIRST)), action)
    return Rule(
        name=str(value.get("name") or "rule {0}".format(number)),
        action=str(action),
        types=_words(where, "types", value, EVENT_TYPES + (UNKNOWN_TYPE,)),
        sources=_words(where, "sources", value, EVENT_SOURCES),
        resources=_patterns(where, "resources", value),
        shorter_than=_seconds(where, "shorter_than", value),
    )


def _parse_window(value: Any) -> Optional[Window]:
    if value is None or value == "":
        return None
    match = WINDOW.match(value) if isinstance(value, str) else None
    if not match:
        raise _wrong("The policy", "key 'approve_between' must look like 22:00-05:00 (UTC)", value)
    opens_hour, opens_minute, closes_hour, closes_minute = (int(number) for number in match.groups())
    window = Window(
        timedelta(hours=opens_hour, minutes=opens_minute), timedelta(hours=closes_hour, minutes=closes_minute)
    )
    if window.opens == window.closes:
        raise _wrong("The policy", "key 'approve_between' must open and close at different times", value)
    return window


def _words(where: str, key: str, rule: Dict[str, Any], known: Tuple[str, ...]) -> Tuple[str, ...]:
    spelling = {name_key(word): word for word in known}
    words = _strings(where, key, rule)
    for word in words:
        if name_key(word) not in spelling:
            raise _wrong(where, "key '{0}' must be of {1}".format(key, ", ".join(known)), word)
    return tuple(spelling[name_key(word)] for word in words)


def _patterns(where: str, key: str, rule: Dict[str, Any]) -> Tuple[str, ...]:
    patterns = _strings(where, key, rule)
    for pattern in patterns:
        try:
            fnmatch.fnmatchcase("", name_key(pattern))
        except re.error:
            raise _wrong(where, "key '{0}' must be of names or patterns".format(key), pattern) from None
    return tuple(patterns)


def _strings(where: str, key: str, rule: Dict[str, Any]) -> List[str]:
    if key not in rule:
        return []
    value = [rule[key]] if isinstance(rule[key], str) else rule[key]
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise _wrong(where, "key '{0}' must be a list of words, and not empty".format(key), rule[key])
    return list(value)


def _seconds(where: str, key: str, rule: Dict[str, Any]) -> Optional[int]:
    if key not in rule:
        return None
    if isinstance(rule[key], bool) or not re.match(r"^[1-9][0-9]{0,8}$", str(rule[key])):
        raise _wrong(where, "key '{0}' must be a whole number of seconds above 0".format(key), rule[key])
    return int(rule[key])


def _known_keys(where: str, value: Dict[str, Any], known: Tuple[str, ...]) -> None:
    for key in value:
        if key not in known:
            raise InputError(
                "{0} has the unknown key {1!r}.".format(where, key), "Known: {0}.".format(", ".join(known))
            )


def _wrong(where: str, what: str, value: Any) -> InputError:
    return InputError("{0}: {1}, but it is {2!r}.".format(where, what, value))


def _time_of_day(moment: datetime) -> timedelta:
    return timedelta(hours=moment.hour, minutes=moment.minute, seconds=moment.second, microseconds=moment.microsecond)
