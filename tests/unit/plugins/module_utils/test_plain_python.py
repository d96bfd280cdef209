# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The core runs where there is no Ansible: in the watcher, with nothing but CPython 3.6."""

import ast
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.azops.maintenance.plugins import module_utils

CORE = Path(next(iter(module_utils.__path__)))
FILES = sorted(CORE.glob("*.py"))
# All that the core has a use for; a name here must be in the standard library of CPython 3.6.
STANDARD_LIBRARY = {
    "collections",
    "contextlib",
    "csv",
    "datetime",
    "email",
    "errno",
    "fcntl",
    "fnmatch",
    "glob",
    "hashlib",
    "http",
    "ipaddress",
    "json",
    "math",
    "os",
    "random",
    "re",
    "select",
    "signal",
    "socket",
    "stat",
    "subprocess",
    "syslog",
    "tempfile",
    "time",
    "typing",
    "urllib",
}
NAMES = [path.stem for path in FILES]


def test_there_is_a_core_to_look_at():
    assert len(FILES) >= 15


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_nothing_is_imported_but_the_standard_library_and_siblings(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= STANDARD_LIBRARY
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module.split(".")[0] in STANDARD_LIBRARY
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1
            assert (CORE / (node.module + ".py")).is_file()


@pytest.mark.parametrize("name", sorted(STANDARD_LIBRARY))
def test_what_counts_as_the_standard_library_comes_with_this_python(name):
    found = getattr(importlib.import_module(name), "__file__", None) or sys.prefix
    assert "site-packages" not in found


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_every_file_compiles_on_this_python(path):
    compile(path.read_text(encoding="utf-8"), str(path), "exec")


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_nothing_reaches_a_shell_and_no_file_is_made_of_what_the_service_sent(path):
    words = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Attribute, ast.Name))
    }
    if path.stem == "_processes":
        words -= {"subprocess", "Popen"}
        assert "shell" not in path.read_text(encoding="utf-8").split('"""')[2]
    assert not words & {"system", "popen", "Popen", "subprocess", "eval", "exec", "pickle", "execv", "spawnv"}


def test_the_core_works_as_a_package_of_its_own_in_an_isolated_python(tmp_path):
    shutil.copytree(str(CORE), str(tmp_path / "core"), ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "core" / "__init__.py").write_text("")
    program = (
        "import sys; sys.path.insert(0, {0!r}); import importlib\n"
        "for name in {1!r}: importlib.import_module('core.' + name)\n"
        "assert not [name for name in sys.modules if name.startswith('ansible')]\n"
    ).format(str(tmp_path), NAMES)
    subprocess.run([sys.executable, "-I", "-B", "-c", program], check=True, cwd=os.path.sep)
