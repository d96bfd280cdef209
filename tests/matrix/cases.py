# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a case is: one fault in one shape of a fleet, on one ansible-core."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from world import SHAPES, THREE, Shape, World

Story = Callable[[World], None]


class Fault(NamedTuple):
    """What goes wrong, told as a story; the shapes in which it can."""

    name: str
    story: Story
    shapes: tuple[Shape, ...]
    is_slow: bool
    in_short_form: bool
    short_shapes: tuple[Shape, ...]


FAULTS: list[Fault] = []


def fault(
    name: str,
    shapes: tuple[Shape, ...] = SHAPES,
    is_slow: bool = False,
    in_short_form: bool = True,
    about_later_batches: bool = False,
) -> Callable[[Story], Story]:
    """Enter a story into the matrix. Slow ones are begun first; some are left out of the short form, because another
    case of it has the same fault. There, those that are about what happens to later batches run over three domains,
    which costs three times as much; the others take turns in the other shapes."""
    quick = tuple(shape for shape in shapes if shape != THREE)

    def enter(story: Story) -> Story:
        FAULTS.append(Fault(name, story, shapes, is_slow, in_short_form, (THREE,) if about_later_batches else quick))
        return story

    return enter
