# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: plan
short_description: The order in which a fleet meets its scheduled events
version_added: 0.1.0
author:
  - The azops.maintenance contributors (@azops)
description:
  - Makes a plan from what M(azops.maintenance.scheduled_events_info) returned on every host. Events that share a VM
    become a unit, units of one update domain of a scope become a batch, and batches are ordered by their deadlines.
  - Nothing is done. The same input gives the same plan.
  - What an event says is never taken for a template, also not when the plan is used later.
positional: _input
options:
  _input:
    description:
      - What M(azops.maintenance.scheduled_events_info) returned, by the name of the host in the inventory.
      - A host that did not answer has what its failed task returned, or V(none).
    type: dict
    required: true
  variables:
    description:
      - What is said of single hosts, by the name of the host. Every key may be left out or V(none).
      - C(scope) and C(domain) name the host's scope and domain, whatever Azure says. C(policy) is its policy.
        C(hold), if V(true), excludes it from drains and its events from approvals. C(variables) has the values of the
        inventory variables in O(domain_by).
    type: dict
    default: {}
  domain_by:
    description:
      - What tells the domain of a VM that has no update domain, in this order. V(fault_domain), V(zone), or the name of
        an inventory variable.
      - A VM that has none of them is a domain by itself.
    type: list
    elements: str
    default: [fault_domain, zone]
  now:
    description: The time for which the plan is made, in UTC. The time at which it is made if not set.
    type: str
  drain_timeout:
    description: How many seconds the drain of a batch may take.
    type: int
    default: 120
  margin:
    description: How many seconds before C(NotBefore) a drain is to be finished.
    type: int
    default: 60
  max_unavailable:
    description:
      - How many VMs of a scope may be out of service at once, as a number or as a percentage such as V(25%), which
        means at least one. VMs that are out already or unreachable count.
      - An unreachable host counts in every scope unless C(scope) in O(variables) says which is its own.
      - A unit that is larger runs alone, and the batch says so.
    type: raw
  side_by_side:
    description: Whether batches of different scopes may run at the same time. Those that may have the same C(step).
    type: bool
    default: false
  longest_wait:
    description: How many seconds a run waits at most for an event to be over, or for the time at which a batch in which
      nothing is approved has to start. A batch that starts later than that is C(is_for_later).
    type: int
    default: 1800
  approve_unmanaged:
    description: Whether events that hit VMs which the play does not reach may be approved all the same.
    type: bool
    default: false
seealso:
  - module: azops.maintenance.scheduled_events_info
  - plugin: azops.maintenance.plan_table
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Scan the fleet
  hosts: web
  gather_facts: false
  tasks:
    - name: Ask every VM
      azops.maintenance.scheduled_events_info:
      become: true
      register: scan
      ignore_errors: true
      ignore_unreachable: true

    - name: Plan
      ansible.builtin.set_fact:
        plan: "{{ answers | azops.maintenance.plan(max_unavailable='25%') }}"
      vars:
        answers: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'scan'))) }}"
      run_once: true

    - name: Say which hosts are hit first
      ansible.builtin.debug:
        msg: "{{ plan.batches | map(attribute='hosts') | first | default([]) }}"
      run_once: true
"""

RETURN = r"""
_value:
  description:
    - The plan. The guide to the report, C(docs/report.md), describes every key.
  type: dict
  contains:
    batches:
      description: What is met together, in order. Each has C(number), C(step), C(scopes), C(domains), C(hosts),
        C(drain), C(units), C(events), C(phases), C(not_before), C(seconds_left), C(drain_by), C(must_start_by),
        C(is_for_later), C(forced), C(spans_domains), C(over_limit) and C(waits_for).
      type: list
      elements: dict
    events:
      description: Every event once, with what is to be done about it and why.
      type: list
      elements: dict
    steps:
      description: The hosts that run together, one step after the other, with a C(spare) host that nothing hits.
      type: list
      elements: dict
    restore:
      description: What is open in journals although the event is gone. It comes before all batches.
      type: list
      elements: dict
    open:
      description: All that is open in journals.
      type: list
      elements: dict
    hosts:
      description: Every host that answered, with its VM, scope, domain, inventory groups, and why it is out of service.
      type: dict
    scopes:
      description: Every scope with its domains, who is out of service, and how many may be.
      type: list
      elements: dict
    silent:
      description: Hosts that did not answer, and why.
      type: list
      elements: dict
    holds:
      description: Hosts that are held, and by what.
      type: list
      elements: dict
    journal_problems:
      description: Journals that cannot be read, wholly or in part.
      type: list
      elements: dict
    not_azure_endpoints:
      description: Hosts whose metadata service is not Azure's, such as a simulator.
      type: list
      elements: dict
    warnings:
      description: What is odd.
      type: list
      elements: str
    options:
      description: The options that the plan was made with.
      type: dict
    made_at:
      description: The time for which it was made.
      type: str
"""

import re
from datetime import timedelta
from typing import Any, Callable, Dict, Optional, Tuple

from ansible.errors import AnsibleFilterError
from ansible.module_utils.common.text.converters import to_text

from ansible_collections.azops.maintenance.plugins.module_utils._document import quote
from ansible_collections.azops.maintenance.plugins.module_utils._errors import InputError
from ansible_collections.azops.maintenance.plugins.module_utils._journal import utc_now
from ansible_collections.azops.maintenance.plugins.plugin_utils._plan import Options, make_plan, parse_now
from ansible_collections.azops.maintenance.plugins.plugin_utils._plan_view import view
from ansible_collections.azops.maintenance.plugins.plugin_utils._scan import DEFAULT_DOMAIN_BY, read_scan
from ansible_collections.azops.maintenance.plugins.plugin_utils._untrusted import untrusted

MAX_UNAVAILABLE = re.compile(r"^([1-9][0-9]{0,5}|(100|[1-9][0-9]?)%)$", re.ASCII)


def plan(
    answers: Any,
    variables: Any = None,
    domain_by: Any = DEFAULT_DOMAIN_BY,
    now: Any = None,
    drain_timeout: Any = 120,
    margin: Any = 60,
    max_unavailable: Any = None,
    side_by_side: Any = False,
    approve_unmanaged: Any = False,
    longest_wait: Any = 1800,
) -> Dict[str, Any]:
    """The filter."""
    try:
        options = Options(
            now=utc_now().replace(microsecond=0) if now is None else parse_now(now),
            drain_timeout=_seconds("drain_timeout", drain_timeout),
            margin=_seconds("margin", margin),
            max_unavailable=_max_unavailable(max_unavailable),
            side_by_side=_flag("side_by_side", side_by_side),
            approve_unmanaged=_flag("approve_unmanaged", approve_unmanaged),
            longest_wait=_seconds("longest_wait", longest_wait),
        )
        scan = read_scan(answers, variables, _names("domain_by", domain_by), options.now, options.margin)
        return untrusted(view(make_plan(scan, options), scan))
    except InputError as error:
        raise AnsibleFilterError("azops.maintenance.plan: {0}".format(error)) from error


def _seconds(name: str, value: Any) -> timedelta:
    if isinstance(value, bool) or not re.match(r"^[0-9]{1,6}$", to_text(value)):
        raise InputError("{0} must be a whole number of seconds, but it is {1}.".format(name, quote(value)))
    return timedelta(seconds=int(value))


def _max_unavailable(value: Any) -> Optional[str]:
    if value is None or value == "":
        return None
    text = to_text(value).strip()
    if isinstance(value, bool) or not MAX_UNAVAILABLE.match(text):
        raise InputError(
            "max_unavailable must be a number from 1 on or a percentage such as 25%, but it is {0}.".format(
                quote(value)
            )
        )
    return text


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError("{0} must be true or false, but it is {1}.".format(name, quote(value)))
    return value


def _names(name: str, value: Any) -> Tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) and item for item in value):
        raise InputError("{0} must be a list of names, but it is {1}.".format(name, quote(value)))
    return tuple(value)


class FilterModule:
    """The filter plan."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"plan": plan}
