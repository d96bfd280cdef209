# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others wrote is never a template."""

from typing import TypeVar

try:
    from ansible.utils.unsafe_proxy import wrap_var
except ImportError:
    # From where it is gone on, only strings that are marked as trusted are templates.
    wrap_var = None

Value = TypeVar("Value")


def untrusted(value: Value) -> Value:
    """The same value; before 2.19, ansible-core would otherwise take braces in it for a template when it is used."""
    if wrap_var is None:
        return value
    marked: Value = wrap_var(value)
    return marked
