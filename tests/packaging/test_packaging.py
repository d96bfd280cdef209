# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the collection, install it into an empty directory, and use it from there and from the checkout."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IN_COLLECTIONS = Path("ansible_collections", "azops", "maintenance")
MODULES = {path.stem for path in (ROOT / "plugins" / "modules").glob("[a-z]*.py")}


def ansible(program: str, *arguments: str | Path, collections: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of the ansible-core that runs this test, with nothing but one collections path."""
    environment = os.environ | {"ANSIBLE_COLLECTIONS_PATH": str(collections), "PYTHONPATH": ""}
    return subprocess.run(
        [Path(sys.executable).with_name(program), *arguments],
        cwd=collections,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tarball")
    built = ansible("ansible-galaxy", "collection", "build", ROOT, "--output-path", directory, collections=directory)
    assert built.returncode == 0, built.stderr
    (path,) = directory.glob("azops-maintenance-*.tar.gz")
    return path


@pytest.fixture(scope="module")
def installed(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("installed")
    done = ansible(
        "ansible-galaxy", "collection", "install", tarball, "--offline", "-p", directory, collections=directory
    )
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def stripped(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed collection with only what may be needed at run time."""
    directory = tmp_path_factory.mktemp("stripped")
    for name in ("meta", "plugins", "roles", "playbooks"):
        if (installed / IN_COLLECTIONS / name).is_dir():
            shutil.copytree(installed / IN_COLLECTIONS / name, directory / IN_COLLECTIONS / name)
    return directory


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A link to the checkout, as the README's installation from git makes it."""
    directory = tmp_path_factory.mktemp("checkout")
    link = directory / IN_COLLECTIONS
    link.parent.mkdir(parents=True)
    link.symlink_to(ROOT)
    return directory


@pytest.fixture(params=["installed", "stripped", "checkout"])
def collections(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A loopback port that is taken but never answers a connection: nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_tarball_holds_no_leftovers(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        names = archive.getnames()
    hidden = {name for name in names if name.split("/")[0] in (".cache", ".git", ".ansible", ".venv")}
    compiled = {name for name in names if "__pycache__" in name or name.endswith(".pyc")}
    assert not hidden | compiled | {name for name in names if name.startswith("tests/output")}
    assert {"MANIFEST.json", "FILES.json", "README.md", "LICENSE", "meta/runtime.yml"} <= set(names)


def test_every_module_is_documented(collections: Path) -> None:
    listing = ansible(
        "ansible-doc", "--type", "module", "--list", "--json", "azops.maintenance", collections=collections
    )
    assert listing.returncode == 0, listing.stderr
    listed = json.loads(listing.stdout)
    assert set(listed) == {f"azops.maintenance.{name}" for name in MODULES}
    assert all(listed.values())


def test_module_runs_and_says_what_is_wrong(collections: Path, dead_port: int) -> None:
    endpoint = f"http://127.0.0.1:{dead_port}"
    arguments = ["-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}", "localhost"]
    module = ["-m", "azops.maintenance.scheduled_events_info", "-a", f"endpoint={endpoint}"]
    run = ansible("ansible", *arguments, *module, collections=collections)
    assert run.returncode == 2, run.stdout + run.stderr
    assert "localhost | FAILED! =>" in run.stdout
    assert '"error_kind": "not_azure"' in run.stdout
    assert endpoint in run.stdout
    assert "Traceback" not in run.stdout + run.stderr


def test_every_playbook_is_found_by_its_full_name(collections: Path) -> None:
    for name in ("install_watcher", "report", "restore", "rolling"):
        checked = ansible(
            "ansible-playbook", "--syntax-check", f"azops.maintenance.{name}", "-i", "web0,", collections=collections
        )
        assert checked.returncode == 0, checked.stderr
