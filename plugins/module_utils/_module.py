# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all modules share: their common options, and how they end. It is given what it needs of Ansible."""

from typing import Any, Callable, Dict, Sequence

from ._client import RETRY_FOR, MetadataClient
from ._document import API_VERSIONS, EVENT_SOURCES, EVENT_STATUSES, NEWEST_API_VERSION, Document
from ._endpoint import AUTO
from ._errors import MaintenanceError
from ._hold import DEFAULT_FILE
from ._journal import DEFAULT_DIRECTORY

Options = Dict[str, Dict[str, Any]]
Fallback = Callable[..., Any]


def common_options(env_fallback: Fallback) -> Options:
    """What every module takes, so that module_defaults can set it once for all of them."""

    def settable_by_environment(kind: str, default: str, variable: str) -> Dict[str, Any]:
        return {"type": kind, "default": default, "fallback": (env_fallback, [variable])}

    return {
        "endpoint": settable_by_environment("str", AUTO, "AZOPS_MAINTENANCE_ENDPOINT"),
        "api_version": dict(
            settable_by_environment("str", NEWEST_API_VERSION, "AZOPS_MAINTENANCE_API_VERSION"),
            choices=list(API_VERSIONS),
        ),
        "journal_dir": settable_by_environment("path", DEFAULT_DIRECTORY, "AZOPS_MAINTENANCE_JOURNAL_DIR"),
        "hold_file": settable_by_environment("path", DEFAULT_FILE, "AZOPS_MAINTENANCE_HOLD_FILE"),
    }


def patience_options() -> Options:
    """How long to bear with the metadata service."""
    return {
        "first_call": {"type": "bool", "default": False},
        "retry_timeout": {"type": "int", "default": int(RETRY_FOR)},
    }


def selection_options(*names: str) -> Options:
    """Which events are meant."""
    options: Options = {
        "event_ids": {"type": "list", "elements": "str"},
        "types": {"type": "list", "elements": "str"},
        "statuses": {"type": "list", "elements": "str", "choices": list(EVENT_STATUSES)},
        "sources": {"type": "list", "elements": "str", "choices": list(EVENT_SOURCES)},
        "resources": {"type": "list", "elements": "str"},
        "only_mine": {"type": "bool", "default": False},
    }
    return {name: options[name] for name in names}


def client_from(options: Dict[str, Any]) -> MetadataClient:
    return MetadataClient(
        options["endpoint"],
        options["api_version"],
        first_call=options.get("first_call", False),
        retry_for=float(options.get("retry_timeout", 0)),
    )


def document_warnings(document: Document) -> Sequence[str]:
    return document.unreadable + document.oddities


def run(module: Any, work: Callable[[Any], Dict[str, Any]]) -> None:
    """Do a module's work and end it: with its result, or with the error and what to do about it."""
    try:
        result = work(module)
    except MaintenanceError as error:
        module.fail_json(**error.as_result())
    else:
        module.exit_json(**result)
