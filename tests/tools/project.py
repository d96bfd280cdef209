# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things are in the checkout, and the two forms in which ansible finds the collection."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
OUTPUT = ROOT / "tests" / "output"
COLLECTIONS = CACHE / "collections"
IN_COLLECTIONS = Path("ansible_collections", "azops", "maintenance")

# What is left out of a copy when git is not there to say what belongs to the project.
NOT_PROJECT = {".ansible", ".cache", ".git", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv"}
# A user's own, at the top only.
INVENTORIES = {ROOT / "inventory", ROOT / "inventory.yml"}


def link_collection() -> Path:
    """Make the checkout importable as azops.maintenance; return the collections path."""
    link = COLLECTIONS / IN_COLLECTIONS
    target = os.path.relpath(ROOT, link.parent)
    if not link.is_symlink() or os.readlink(link) != target:
        link.parent.mkdir(parents=True, exist_ok=True)
        temporary = link.with_name(f".{link.name}.{os.getpid()}.{threading.get_ident()}")
        temporary.symlink_to(target)
        temporary.replace(link)
    return COLLECTIONS


def copy_collection(collections: Path) -> Path:
    """Put a real copy of the project under a collections path (ansible-test resolves symlinks); return the copy."""
    copy = collections / IN_COLLECTIONS
    shutil.rmtree(copy, ignore_errors=True)
    for relative in project_files():
        destination = copy / relative
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / relative, destination, follow_symlinks=False)
    return copy


def project_files() -> list[Path]:
    """The files that belong to the project: as git sees them, or all but the known leftovers."""
    names = _git_files()
    files = [Path(name) for name in names] if names is not None else list(_walk_files())
    return sorted(file for file in files if (ROOT / file).is_symlink() or (ROOT / file).is_file())


def _git_files() -> list[str] | None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return None
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        return None
    return [name for name in listing.stdout.split("\0") if name]


def _walk_files() -> Iterator[Path]:
    for directory, subdirectories, names in os.walk(ROOT):
        here = Path(directory)
        subdirectories[:] = [
            name
            for name in subdirectories
            if name not in NOT_PROJECT | {"__pycache__"} and here / name not in INVENTORIES | {OUTPUT}
        ]
        for name in names:
            if not name.endswith((".pyc", ".tar.gz")) and here / name not in INVENTORIES:
                yield (here / name).relative_to(ROOT)
