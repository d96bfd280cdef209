#!/usr/bin/python
# Copyright (c) 2026 azops.maintenance contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: drain_health
short_description: Wait until a VM's units run and its ports and URLs answer
version_added: 0.1.0
description:
  - Looks again and again until all checks are met at once, or O(timeout) is over, which is an error that names those
    that are not met.
extends_documentation_fragment:
  - azops.maintenance.scheduled_events
  - azops.maintenance.attributes
  - azops.maintenance.attributes.info_module
  - azops.maintenance.attributes.actiongroup_maintenance
attributes:
  check_mode:
    details: Looks once, and what is not met is no error, since nothing was restored before it.
options:
  units:
    description: Units that have to be active. A name without a suffix is a service.
    type: list
    elements: str
    default: []
  ports:
    description: TCP ports that have to answer, as a port of the VM itself or as V(HOST:PORT).
    type: list
    elements: str
    default: []
  urls:
    description: URLs that have to answer. They are asked for directly, not through a proxy. Redirects are not followed.
    type: list
    elements: dict
    default: []
    suboptions:
      url:
        description: The URL.
        type: str
        required: true
      status:
        description: The HTTP status codes that are good.
        type: list
        elements: int
        default: [200]
      headers:
        description: Headers to send, such as V(Host).
        type: dict
      validate_certs:
        description: Whether the certificate is checked.
        type: bool
        default: true
  timeout:
    description: Seconds within which all checks have to be met.
    type: int
    default: 120
author:
  - The azops.maintenance contributors (@azops)
"""

EXAMPLES = r"""
- name: Wait until the web server serves
  azops.maintenance.drain_health:
    units: [nginx.service]
    ports: ["443"]
    urls:
      - url: http://127.0.0.1/health
    timeout: 60
"""

RETURN = r"""
checks:
  description: How each check ended.
  returned: always
  type: list
  elements: dict
  contains:
    check:
      description: What was looked at.
      type: str
      sample: http://127.0.0.1/health
    ok:
      description: Whether it is met.
      type: bool
      sample: true
    found:
      description: What was found.
      type: str
      sample: status 200
seconds:
  description: How long it took until all were met.
  returned: always
  type: float
  sample: 1.5
error_kind:
  description: What kind of error it was.
  returned: failure
  type: str
  sample: drain
"""

import http.client
import socket
import ssl
import time
import urllib.error
import urllib.request
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ansible.module_utils.basic import AnsibleModule, env_fallback

from ansible_collections.azops.maintenance.plugins.module_utils._drain import Deadline
from ansible_collections.azops.maintenance.plugins.module_utils._errors import DrainError, InputError
from ansible_collections.azops.maintenance.plugins.module_utils._module import common_options, run
from ansible_collections.azops.maintenance.plugins.module_utils._systemctl import show, unit_name

LONGEST_LOOK = 10.0
LOOK_EVERY = 1.0


class Finding(NamedTuple):
    """How one check ended."""

    check: str
    ok: bool
    found: str


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def check_unit(name: str) -> Finding:
    unit = show(name)
    return Finding(name, unit.active_state == "active", unit.words)


def check_port(port: str, patience: float) -> Finding:
    try:
        socket.create_connection(split_port(port), timeout=patience).close()
    except OSError as error:
        return Finding("port " + port, False, error.strerror or "no answer")
    return Finding("port " + port, True, "answers")


def split_port(port: str) -> Tuple[str, int]:
    host, _colon, number = port.rpartition(":")
    if not number.isdigit() or not 0 < int(number) < 65536:
        raise InputError("{0!r} is no port and no HOST:PORT.".format(port), "Correct drain_health_ports.")
    return host.strip("[]") or "127.0.0.1", int(number)


def check_url(wanted: Dict[str, Any], patience: float) -> Finding:
    url = wanted["url"]
    if not url.startswith(("http://", "https://")):
        raise InputError("{0!r} is no http or https URL.".format(url), "Correct drain_health_urls.")
    context: Optional[ssl.SSLContext] = None
    if url.startswith("https:") and not wanted["validate_certs"]:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), NoRedirect(), urllib.request.HTTPSHandler(context=context)
    )
    headers = {str(name): str(value) for name, value in (wanted["headers"] or {}).items()}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - checked above
    try:
        with opener.open(request, timeout=patience) as answer:
            status = answer.getcode()
    except urllib.error.HTTPError as error:
        status = error.code
        error.close()
    except (OSError, ValueError) as error:
        return Finding(url, False, str(getattr(error, "reason", error)) or "no answer")
    except http.client.HTTPException as error:
        return Finding(url, False, "no HTTP answer ({0})".format(error.__class__.__name__))
    return Finding(url, status in wanted["status"], "status {0}".format(status))


def look(params: Dict[str, Any], patience: float) -> List[Finding]:
    findings = [check_unit(unit_name(name)) for name in params["units"]]
    findings += [check_port(port, patience) for port in params["ports"]]
    return findings + [check_url(url, patience) for url in params["urls"]]


def act(module: AnsibleModule) -> Dict[str, Any]:
    begun = time.monotonic()
    deadline = Deadline(module.params["timeout"])
    while True:
        findings = look(module.params, max(1.0, min(LONGEST_LOOK, deadline.left)))
        bad = [finding for finding in findings if not finding.ok]
        if not bad or module.check_mode:
            return {
                "checks": [dict(finding._asdict()) for finding in findings],
                "seconds": round(time.monotonic() - begun, 3),
            }
        if deadline.is_over:
            raise DrainError(
                "Not healthy after {0:.0f} s: {1}.".format(
                    deadline.seconds, "; ".join("{0} ({1})".format(one.check, one.found) for one in bad)
                ),
                "Bring it to health on the VM, or correct the drain_health_* variables, then run the playbook again.",
            )
        time.sleep(min(LOOK_EVERY, max(0.01, deadline.left)))


def main() -> None:
    texts: Dict[str, Any] = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec=dict(
            **common_options(env_fallback),
            units=texts,
            ports=texts,
            urls={
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "url": {"type": "str", "required": True},
                    "status": {"type": "list", "elements": "int", "default": [200]},
                    "headers": {"type": "dict"},
                    "validate_certs": {"type": "bool", "default": True},
                },
            },
            timeout={"type": "int", "default": 120},
        ),
        supports_check_mode=True,
    )
    run(module, act)


if __name__ == "__main__":
    main()
