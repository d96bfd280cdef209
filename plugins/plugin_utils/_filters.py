# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How pure functions become filters."""

import functools
from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError

from ansible_collections.azops.maintenance.plugins.module_utils._errors import InputError
from ansible_collections.azops.maintenance.plugins.plugin_utils._untrusted import untrusted


def as_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its errors as Ansible shows them, and a result that is never taken for a template."""

    @functools.wraps(function)
    def filtered(*arguments: Any, **options: Any) -> Any:
        try:
            return untrusted(plain(function(*arguments, **options)))
        except (InputError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise AnsibleFilterError(
                "azops.maintenance.{0}: {1}: {2}".format(name, type(error).__name__, error)
            ) from error

    return filtered


def plain(value: Any) -> Any:
    """A copy in dictionaries and lists of our own: parts of what a filter was given may be views that Ansible templates
    when they are read."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
