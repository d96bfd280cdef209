# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where things are, what the user wants, and what must stay secret."""

import os
import re
import stat
from typing import Any, Dict, List, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

from azops_core._document import API_VERSIONS, NEWEST_API_VERSION
from azops_core._errors import InputError
from azops_core._policy import Policy, parse_policy
from azops_core._safe_files import read_json

SCHEDULED, STARTED, GONE = "scheduled", "started", "gone"
STATUSES = (SCHEDULED, STARTED, GONE)


class Paths(NamedTuple):
    """Every file and directory that the watcher knows, below a root for tests."""

    root: str = ""

    @property
    def config(self) -> str:
        return self.root + "/etc/azops-watcher/config.json"

    @property
    def secrets(self) -> str:
        return self.root + "/etc/azops-watcher/secrets.json"

    @property
    def hooks(self) -> str:
        return self.root + "/etc/azops-watcher/hooks.d"

    @property
    def state(self) -> str:
        return self.root + "/var/lib/azops-watcher"

    @property
    def requests(self) -> str:
        """What the watcher asks of the root unit; its user writes here, root trusts nothing in it."""
        return self.state + "/requests"

    @property
    def results(self) -> str:
        """What the root unit answers; only root writes here."""
        return self.root + "/var/lib/azops-watcher-hooks"

    @property
    def public(self) -> str:
        return self.root + "/run/azops-watcher"

    @property
    def public_state(self) -> str:
        return self.public + "/state.json"

    @property
    def metrics(self) -> str:
        return self.public + "/metrics.prom"

    @property
    def journal(self) -> str:
        return self.root + "/var/lib/azops-maintenance/journal"

    @property
    def hold(self) -> str:
        return self.root + "/etc/azops-maintenance/hold"


class Config(NamedTuple):
    """What the user wants, checked."""

    endpoint: str = "auto"
    api_version: str = NEWEST_API_VERSION
    poll_seconds: int = 1
    hook_timeout: int = 120
    margin: int = 60
    act_alone: bool = False
    approve_shared_events: bool = False
    scope: Optional[str] = None
    policy: Policy = parse_policy(None)
    webhook_url: Optional[str] = None
    webhook_statuses: Tuple[str, ...] = STATUSES
    awx_launch_url: Optional[str] = None
    awx_limit: Optional[str] = None
    awx_statuses: Tuple[str, ...] = (SCHEDULED,)
    ca_file: Optional[str] = None


class Secrets(NamedTuple):
    """What must not be seen; its repr shows nothing."""

    webhook_secret: Optional[str] = None
    webhook_token: Optional[str] = None
    awx_token: Optional[str] = None

    def __repr__(self) -> str:
        return "Secrets(...)"


def load_config(paths: Paths) -> Config:
    """The configuration; without a file, the defaults."""
    return check_config(paths.config)


def check_config(path: str) -> Config:
    """Understand a configuration file. Raises InputError that names the file and the key."""
    value = _read(path)
    checks = {
        "endpoint": _text,
        "api_version": _one_of(API_VERSIONS),
        "poll_seconds": _seconds(1, 3600),
        "hook_timeout": _seconds(1, 3600),
        "margin": _seconds(0, 3600),
        "act_alone": _boolean,
        "approve_shared_events": _boolean,
        "scope": _text,
        "policy": parse_policy,
        "webhook_url": _url,
        "webhook_statuses": _statuses,
        "awx_launch_url": _launch_url,
        "awx_limit": _text,
        "awx_statuses": _statuses,
        "ca_file": _text,
    }
    config = Config(**_checked(path, value, checks))
    if config.awx_launch_url and not config.awx_limit:
        raise InputError("{0}: awx_launch_url is set, but awx_limit is not.".format(path))
    return config


def load_secrets(paths: Paths) -> Secrets:
    """The secrets, from a file that only its owner can read."""
    value = _read(paths.secrets)
    if value and stat.S_IMODE(os.stat(paths.secrets).st_mode) & 0o077:
        raise InputError(
            "{0} can be read by others.".format(paths.secrets), "Run: chmod 0600 {0}".format(paths.secrets)
        )
    return Secrets(**_checked(paths.secrets, value, dict.fromkeys(Secrets._fields, _text)))


def _read(path: str) -> Dict[str, Any]:
    try:
        return read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError("Cannot read {0}: {1}.".format(path, error), "Run the role again to write it anew.") from None


def _checked(path: str, value: Dict[str, Any], checks: Dict[str, Any]) -> Dict[str, Any]:
    checked: Dict[str, Any] = {}
    for key, item in value.items():
        if key not in checks:
            raise InputError("{0} has the unknown key {1!r}.".format(path, key))
        if item is None:
            continue
        try:
            checked[key] = checks[key](item)
        except ValueError as error:
            raise InputError("{0}: {1} {2}.".format(path, key, error)) from None
    return checked


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a word")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _seconds(smallest: int, largest: int) -> Any:
    def check(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not smallest <= value <= largest:
            raise ValueError("must be a whole number from {0} to {1}".format(smallest, largest))
        return value

    return check


def _one_of(words: Tuple[str, ...]) -> Any:
    def check(value: Any) -> str:
        if value not in words:
            raise ValueError("must be one of {0}".format(", ".join(words)))
        return str(value)

    return check


def _statuses(value: Any) -> Tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list")
    return tuple(_one_of(STATUSES)(item) for item in value)


def _url(value: Any) -> str:
    """Secrets travel there, so plain http is only for this machine itself."""
    parts = urlsplit(_text(value))
    if parts.scheme == "https" and parts.hostname:
        return str(value)
    if parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1"):
        return str(value)
    raise ValueError("must be an https URL, or an http URL on this machine")


def _launch_url(value: Any) -> str:
    if not re.search(r"/(?:workflow_)?job_templates/[^/]+/launch/$", _url(value)):
        raise ValueError("must end in /job_templates/ID/launch/ or /workflow_job_templates/ID/launch/")
    return str(value)


def unknown_hook_directories(paths: Paths) -> List[str]:
    """Directories below the hooks that no status ever runs, most likely misspelt."""
    try:
        names = os.listdir(paths.hooks)
    except OSError:
        return []
    return sorted(name for name in names if name not in [status + ".d" for status in STATUSES])
