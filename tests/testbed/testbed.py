# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real hosts on one machine: systemd as PID 1, sshd, and the metadata service at its true address.

Each host is a container in a network namespace of its own. README.md beside this file tells how it works.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import ipaddress
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
RECIPE = HERE / "image"
SIMULATOR = PROJECT / "roles" / "simulator" / "files" / "azops_simulator.py"

RUN = Path("/run/azops-testbed")
CACHE = Path("/var/tmp/azops-testbed")  # survives a restart of the machine; images are worth keeping
STATE = RUN / "testbed.json"
INVENTORY = RUN / "inventory.yml"
SSH_CONFIG = RUN / "ssh_config"
SSH_KEY = RUN / "id_ed25519"
SSH_SOCKETS = RUN / "ssh"
TOPOLOGY = RUN / "topology.json"
SIMULATOR_SOCKET = RUN / "simulator.sock"
SIMULATOR_LOG = RUN / "simulator.log"
SIMULATOR_READY = RUN / "simulator.json"
SIMULATOR_OUTPUT = RUN / "simulator.out"

# Everything made here is found again by one of these names, also after a crash.
BRIDGE = "azops0"
PREFIX = "azops-"
LABEL = "azops.testbed"

METADATA = "169.254.169.254"
MAXIMUM = 200  # hosts; addresses would do for a few more
SUITES = ("bookworm", "bullseye", "trixie")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = {  # a command or file that is needed: the package that has it
    "podman": "podman",
    "runc": "runc",
    "/usr/lib/podman/netavark": "netavark",
    "mmdebstrap": "mmdebstrap",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "zstd": "zstd",
    KEYRING: "debian-archive-keyring",
}
CAPABILITIES = "SYS_ADMIN,NET_ADMIN,SYS_PTRACE,AUDIT_WRITE"
INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_BEFORE = RUN / "inotify-before"
INOTIFY_PER_HOST = 16

BOOT_TIMEOUT = 60.0
SHUTDOWN_TIMEOUT = 10
EXIT_LEFT_OUT = 77


class TestbedError(Exception):
    """Something that the user has to know, in one line."""


class CannotRunError(TestbedError):
    """This machine cannot have a test bed."""


class Host(NamedTuple):
    """One host: its name in the inventory, its Debian release and the VM that it plays."""

    name: str
    suite: str
    number: int
    address: str
    vm: dict[str, Any]

    @property
    def instance(self) -> str:
        """Name of the container and of the network namespace."""
        return PREFIX + self.name

    @property
    def link(self) -> str:
        """The bridge's end of the host's cable."""
        return f"{BRIDGE}p{self.number}"


# Running programs


def run(*command: str, stdin: str | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command and return what it printed; its error becomes ours."""
    done = subprocess.run(
        command, input=stdin, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
        raise TestbedError(f"{' '.join(command[:4])}… failed with {done.returncode}: {last}")
    return done.stdout.strip()


def podman_environment() -> dict[str, str]:
    """The engine's settings: runc, no systemd on the machine needed, and limits that the machine can grant."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    text = (
        f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc=32768:32768"]\n'
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    path = CACHE / "containers.conf"
    if not path.exists() or path.read_text() != text:
        CACHE.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"CONTAINERS_CONF": str(path)}


def podman(*arguments: str) -> str:
    return run("podman", *arguments, env=podman_environment())


def ip(*arguments: str) -> str:
    return run("ip", *arguments)


def wait_for(what: str, condition: Callable[[], bool], timeout: float) -> None:
    """Return as soon as the condition holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TestbedError(f"{what}: not within {timeout:.0f} s")
        time.sleep(0.05)


def say(message: str) -> None:
    print(f"testbed: {message}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - start:.1f} s")


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep two of `image`, `up` and `down` from working on the same test bed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def check_machine() -> None:
    """Refuse, in one line, on a machine that cannot have a test bed."""
    reason = None
    if sys.platform != "linux":
        reason = "it needs Linux"
    elif os.geteuid() != 0:
        reason = "it needs root"
    elif not shutil.which("apt-get"):
        reason = "it needs apt-get"
    elif subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        reason = "this root may not make namespaces"
    if reason:
        raise CannotRunError(
            f"left out: everything on real hosts with systemd, because {reason}; run as root on Debian 12 or later"
        )


# Packages and images


def missing_packages() -> list[str]:
    return [package for need, package in PACKAGES.items() if not (shutil.which(need) or Path(need).exists())]


def install() -> None:
    packages = missing_packages()
    if not packages:
        return
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with timed(f"installed {' '.join(packages)}"):
        run("apt-get", "-q", "update", env=quiet)
        run("apt-get", "-q", "install", "--yes", "--no-install-recommends", *packages, env=quiet)


def sources(suite: str) -> str:
    """The machine's own package sources, for another Debian release."""
    machine = {}
    for line in Path("/etc/os-release").read_text().splitlines():
        key, _equals, value = line.partition("=")
        machine[key] = value.strip('"')
    codename = machine.get("VERSION_CODENAME", "")
    targets = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages")
    lines = []
    for target in targets.splitlines():
        uri, release, component = target.split()
        base, _dash, pocket = release.partition("-")
        if base == codename and component == "main" and pocket in ("", "updates", "security"):
            lines.append(f"deb [signed-by={KEYRING}] {uri} {suite}{'-' + pocket if pocket else ''} main")
    if machine.get("ID") != "debian" or not lines:
        raise CannotRunError("left out: images of Debian, because this machine's apt has no Debian source")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def apt_options() -> list[str]:
    """Take over a proxy that apt on this machine is told to use."""
    options = []
    for key in ("Acquire::http::Proxy", "Acquire::https::Proxy"):
        value = run("apt-config", "shell", "VALUE", key).partition("=")[2].strip("'")
        if value:
            options.append(f'--aptopt={key} "{value}"')
    return options


def recipe() -> list[str]:
    """The arguments of mmdebstrap, without what depends on the machine."""
    lines = (RECIPE / "packages.txt").read_text().splitlines()
    packages = [line for line in lines if line and not line.startswith("#")]
    unneeded = (
        "/usr/share/doc/*",
        "/usr/share/i18n/*",
        "/usr/share/info/*",
        "/usr/share/locale/*",
        "/usr/share/man/*",
        # PostgreSQL does without its just-in-time compiler when it finds none: a third of the image.
        "/usr/lib/*/libLLVM*",
        "/usr/lib/*/libz3.so*",
        "/usr/lib/postgresql/*/lib/bitcode/*",
        "/usr/lib/postgresql/*/lib/llvmjit*",
    )
    return [
        "--mode=root",
        "--variant=apt",
        "--skip=output/dev",
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude={path}" for path in unneeded),
        f"--include={','.join(packages)}",
    ]


def recipe_hash() -> str:
    digest = hashlib.sha256("\n".join(recipe()).encode())
    for path in sorted(RECIPE.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def image(suite: str) -> str:
    """The name of the image for a Debian release, built if there is none of this recipe yet."""
    version = recipe_hash()
    name = f"localhost/azops-testbed-{suite}:{version}"
    if name in podman("images", "--format", "{{.Repository}}:{{.Tag}}").splitlines():
        return name
    archive = CACHE / f"{suite}-{version}.tar.zst"
    if not archive.exists():
        say(f"building {suite}, about a minute")
        with timed(f"built {suite}"):
            build(suite, archive)
    with timed(f"imported {suite}"):
        changes = ('CMD ["/usr/sbin/testbed-init"]', "ENV container=podman", "STOPSIGNAL SIGRTMIN+3")
        options = [option for change in changes for option in ("--change", change)]
        podman("import", "--quiet", *options, str(archive), name)
    for old in podman("images", "--format", "{{.Repository}}:{{.Tag}}").splitlines():
        if old.startswith(f"localhost/azops-testbed-{suite}:") and old != name:
            podman("rmi", "--force", old)
    return name


def build(suite: str, archive: Path) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    for old in CACHE.glob(f"{suite}-*.tar.zst"):
        old.unlink()
    unfinished = CACHE / f"unfinished-{suite}.tar.zst"
    hook = f"--customize-hook={RECIPE / 'customize'}"
    try:
        run("mmdebstrap", *recipe(), *apt_options(), hook, suite, str(unfinished), "-", stdin=sources(suite))
        unfinished.rename(archive)
    finally:
        unfinished.unlink(missing_ok=True)


# The fleet


def free_network() -> ipaddress.IPv4Network:
    """A private network that the machine does not use yet."""
    used = [
        ipaddress.ip_network(f"{address['local']}/{address['prefixlen']}", strict=False)
        for link in json.loads(ip("-json", "-4", "address"))
        for address in link["addr_info"]
    ]
    for third in range(169, 255):
        network = ipaddress.IPv4Network(f"10.254.{third}.0/24")
        if not any(network.overlaps(other) for other in used if isinstance(other, ipaddress.IPv4Network)):
            return network
    raise TestbedError("no free network in 10.254.169.0 to 10.254.254.0")


def default_topology(count: int) -> dict[str, Any]:
    """One availability set over three update domains. The names that Azure uses are not those of the inventory."""
    vms = [
        {"name": f"Web_{i}", "computer_name": f"web{i}", "update_domain": i % 3, "fault_domain": i % 2}
        for i in range(count)
    ]
    return {"scopes": [{"name": "web", "type": "availability_set", "vms": vms}]}


def fleet(topology: dict[str, Any], suites: Sequence[str], network: ipaddress.IPv4Network) -> list[Host]:
    """The hosts for a simulator's topology, which is completed on the way: where each VM is and how to hit it."""
    scopes = topology.get("scopes", [])
    vms = [vm for scope in scopes for vm in scope.get("vms", [])]
    if not 0 < len(vms) <= MAXIMUM or any("instances" in scope for scope in scopes):
        raise TestbedError(f"the topology has to list its VMs under vms, 1 to {MAXIMUM}")
    hosts: list[Host] = []
    for number, vm in enumerate(vms):
        name = vm.setdefault("computer_name", vm["name"].lower().replace("_", "-"))
        suite = vm.get("tags", {}).get("suite", suites[number % len(suites)])
        host = Host(name, suite, number, str(network[number + 2]), vm)
        if suite not in SUITES or name in [other.name for other in hosts]:
            raise TestbedError(f"{name}: there is no image {suite}, or two VMs have this computer_name")
        vm["netns"] = f"/run/netns/{host.instance}"
        vm["private_address"] = host.address
        impact = {
            "default": own_command("reboot", name),
            "Freeze": own_command("freeze", name, "--seconds", "3"),
            "Preempt": own_command("kill", name),
            "Terminate": own_command("kill", name),
        }
        vm.setdefault("impact", impact)
        hosts.append(host)
    return hosts


def own_command(*arguments: str) -> list[str]:
    return [sys.executable, str(Path(__file__).resolve()), *arguments]


def save_state(hosts: Sequence[Host]) -> None:
    STATE.write_text(json.dumps([host._asdict() for host in hosts], indent=2) + "\n")


def hosts_of_testbed() -> list[Host]:
    try:
        return [Host(**fields) for fields in json.loads(STATE.read_text())]
    except FileNotFoundError:
        raise TestbedError("there is no test bed; make one with: testbed.py up") from None


def host_named(name: str) -> Host:
    hosts = hosts_of_testbed()
    for host in hosts:
        if host.name == name:
            return host
    raise TestbedError(f"there is no host {name}; there are {', '.join(host.name for host in hosts)}")


# Files for those who use the hosts


def write_access(hosts: Sequence[Host]) -> None:
    """A key, an ssh configuration and an inventory; nothing of the user's own ssh configuration is read or changed."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "azops-testbed", "-f", str(SSH_KEY))
    SSH_SOCKETS.mkdir(mode=0o700)
    blocks = [f"Host {host.name}\n  HostName {host.address}\n" for host in hosts]
    blocks.append(
        "Host *\n  User ops\n"
        f"  IdentityFile {SSH_KEY}\n  IdentitiesOnly yes\n"
        "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    )
    SSH_CONFIG.write_text("".join(blocks))
    INVENTORY.write_text(json.dumps(inventory(hosts), indent=2) + "\n")  # JSON is YAML


def inventory(hosts: Sequence[Host]) -> dict[str, Any]:
    groups: dict[str, Any] = {
        "testbed": {
            "hosts": {host.name: {"ansible_host": host.address, "testbed_vm": host.vm["name"]} for host in hosts},
            "vars": {
                "ansible_user": "ops",
                "ansible_python_interpreter": "/usr/bin/python3",
                # Ansible's own options for one lasting connection per host, with this configuration and these sockets.
                "ansible_ssh_args": f"-F {SSH_CONFIG} -o ControlMaster=auto -o ControlPersist=60s",
                "ansible_control_path_dir": str(SSH_SOCKETS),
            },
        }
    }
    for host in hosts:
        for group in (host.suite, f"update_domain_{host.vm.get('update_domain', 0)}"):
            groups.setdefault(group, {"hosts": {}})["hosts"][host.name] = {}
    # For tasks on the machine itself (localhost): what happens to hosts, and to the VMs that they play.
    commands = {
        "testbed_command": own_command(),
        "testbed_simulator": [sys.executable, str(SIMULATOR)],
        "testbed_simulator_environment": {"AZOPS_SIMULATOR_CONTROL": f"unix:{SIMULATOR_SOCKET}"},
    }
    return {"all": {"vars": commands, "children": groups}}


def link_collection() -> None:
    """The checkout under the name by which Ansible finds it."""
    path = RUN / "collections" / "ansible_collections" / "azops" / "maintenance"
    path.parent.mkdir(parents=True)
    path.symlink_to(PROJECT)


# Making hosts


def make_network(hosts: Sequence[Host], network: ipaddress.IPv4Network) -> None:
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("address", "add", f"{next(network.hosts())}/{network.prefixlen}", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    for host in hosts:
        space = host.instance
        ip("netns", "add", space)
        ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("link", "set", host.link, "master", BRIDGE, "up")
        ip("-n", space, "link", "set", "lo", "up")
        ip("-n", space, "address", "add", f"{METADATA}/32", "dev", "lo")
        ip("-n", space, "address", "add", f"{host.address}/{network.prefixlen}", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        # No default route: without the simulator, a request to the metadata service must not leave the machine.


def raise_limits(hosts: Sequence[Host]) -> None:
    now = int(INOTIFY.read_text())
    if now < len(hosts) * INOTIFY_PER_HOST:
        INOTIFY_BEFORE.write_text(str(now))
        INOTIFY.write_text(str(len(hosts) * INOTIFY_PER_HOST))


def make_host(host: Host, name_of_image: str, names: Sequence[str]) -> None:
    podman(
        "run",
        "--detach",
        "--pull=never",
        f"--name={host.instance}",
        f"--hostname={host.name}",
        f"--label={LABEL}",
        f"--network=ns:/run/netns/{host.instance}",
        "--dns=none",
        *(f"--add-host={name}" for name in names),
        "--cgroupns=private",
        f"--cap-add={CAPABILITIES}",
        "--systemd=always",
        "--restart=always",
        "--log-driver=none",
        f"--volume={host.instance}-journal:/var/log/journal",
        f"--volume={SSH_KEY}.pub:/etc/ssh/testbed_keys:ro",
        name_of_image,
    )


def sshd_answers(host: Host) -> bool:
    try:
        with socket.create_connection((host.address, 22), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def system_state(host: Host) -> str:
    """What systemd says once it has finished starting; empty as long as it cannot be asked."""
    command = ["podman", "exec", host.instance, "systemctl", "is-system-running", "--wait"]
    done = subprocess.run(
        command, env={**os.environ, **podman_environment()}, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def wait_until_up(host: Host) -> None:
    state = ""

    def booted() -> bool:
        nonlocal state
        state = system_state(host)
        return state in ("running", "degraded")

    wait_for(f"{host.name}: systemd has started", booted, BOOT_TIMEOUT)
    if state == "degraded":
        failed = podman("exec", host.instance, "systemctl", "--failed", "--plain", "--no-legend")
        raise TestbedError(f"{host.name}: systemd is degraded: {failed}")
    wait_for(f"{host.name}: sshd answers", lambda: sshd_answers(host), BOOT_TIMEOUT)


def up(topology: dict[str, Any], suites: Sequence[str]) -> None:
    network = free_network()
    hosts = fleet(topology, suites, network)
    images = {suite: image(suite) for suite in sorted({host.suite for host in hosts})}
    RUN.mkdir(parents=True, exist_ok=True)
    with timed(f"{len(hosts)} hosts up"):
        save_state(hosts)
        write_access(hosts)
        link_collection()
        TOPOLOGY.write_text(json.dumps(topology, indent=2) + "\n")
        raise_limits(hosts)
        make_network(hosts, network)
        simulator_start()
        names = [f"{host.name}:{host.address}" for host in hosts] + [f"testbed:{next(network.hosts())}"]
        for host in hosts:
            make_host(host, images[host.suite], names)
        with ThreadPoolExecutor(max_workers=4) as pool:
            list(pool.map(wait_until_up, hosts))


def down() -> None:
    """Remove everything that a test bed can have made, whatever is left of it."""
    simulator_kill()
    end("an impact", impact_processes)
    end("the start of a host", starting_processes)
    for path in SSH_SOCKETS.glob("*"):
        subprocess.run(["ssh", "-O", "exit", "-S", str(path), "testbed"], capture_output=True, check=False)
    if shutil.which("podman"):
        remove_hosts()
    if shutil.which("ip"):
        remove_network()
    if INOTIFY_BEFORE.exists():
        INOTIFY.write_text(INOTIFY_BEFORE.read_text())
    if RUN.exists():
        shutil.rmtree(RUN)


def remove_hosts() -> None:
    containers = podman("ps", "--all", "--quiet", "--filter", f"label={LABEL}").split()
    if containers:
        podman("rm", "--force", "--time=0", *containers)
    for volume in podman("volume", "ls", "--format", "{{.Name}}").split():
        if volume.startswith(PREFIX) and volume.endswith("-journal"):
            podman("volume", "rm", "--force", volume)


def remove_network() -> None:
    # The cables before the namespaces: these go away later than the command that removes them.
    links = [link["ifname"] for link in json.loads(ip("-json", "link"))]
    for name in sorted(links, key=len, reverse=True):
        if name == BRIDGE or name.startswith(f"{BRIDGE}p"):
            ip("link", "delete", name)
    for line in ip("netns", "list").splitlines():
        if line.startswith(PREFIX):
            ip("netns", "delete", line.split()[0])


# What happens to hosts


def reboot(host: Host) -> None:
    podman("restart", f"--time={SHUTDOWN_TIMEOUT}", host.instance)
    wait_until_up(host)


def kill(host: Host) -> None:
    """Power loss: nothing is told, nothing is written; off until started."""
    podman("kill", "--signal=KILL", host.instance)
    podman("wait", host.instance)


def start(host: Host) -> None:
    podman("start", host.instance)
    wait_until_up(host)


def freeze(host: Host, seconds: float | None) -> None:
    podman("pause", host.instance)
    if seconds is not None:
        time.sleep(seconds)  # the freeze itself, not a wait for something
        unfreeze(host)


def unfreeze(host: Host) -> None:
    podman("unpause", host.instance)


def partition(host: Host) -> None:
    """Pull the cable: packets vanish in both directions, and no connection is told."""
    ip("link", "set", host.link, "down")


def heal(host: Host) -> None:
    ip("link", "set", host.link, "up")


# The simulator


def command_lines() -> Iterator[tuple[int, list[str]]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield int(path.parent.name), path.read_bytes().decode(errors="replace").split("\0")


def simulator_processes() -> list[int]:
    """Found by what it was started with, so that a lost process id does not matter."""
    return [process for process, words in command_lines() if "serve" in words and f"--topology={TOPOLOGY}" in words]


def impact_processes() -> list[int]:
    """What the simulator has started to hit a VM and is not done yet."""
    program = own_command()[1]
    commands = ("reboot", "freeze", "kill")
    return [process for process, words in command_lines() if words[1:2] == [program] and words[2] in commands]


def starting_processes() -> list[int]:
    """What a killed run has left half way."""
    return [process for process, words in command_lines() if words[0] == "podman" and f"--label={LABEL}" in words]


def end(what: str, processes: Callable[[], list[int]]) -> None:
    for process in processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    wait_for(f"{what} has ended", lambda: not processes(), 10)


def simulator_start() -> None:
    if simulator_processes():
        raise TestbedError("the simulator is already running")
    SIMULATOR_SOCKET.unlink(missing_ok=True)
    SIMULATOR_READY.unlink(missing_ok=True)
    command = [
        sys.executable,
        str(SIMULATOR),
        "serve",
        f"--topology={TOPOLOGY}",
        "--listen=none",
        "--allow-non-loopback",
    ]
    command += [f"--control=unix:{SIMULATOR_SOCKET}", f"--log={SIMULATOR_LOG}", f"--ready-file={SIMULATOR_READY}"]
    with SIMULATOR_OUTPUT.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )

    def listening() -> bool:
        if process.poll() is not None:
            last = SIMULATOR_OUTPUT.read_text().strip().splitlines()[-3:]
            raise TestbedError(f"the simulator ended with {process.returncode}: {' '.join(last)}")
        return SIMULATOR_READY.exists()

    wait_for("the simulator listens", listening, 15)


def simulator_signal(number: signal.Signals) -> None:
    processes = simulator_processes()
    if not processes:
        raise TestbedError("the simulator is not running")
    for process in processes:
        os.kill(process, number)


def simulator_kill() -> None:
    end("the simulator", simulator_processes)


def simulator_restart() -> None:
    simulator_kill()
    simulator_start()


def simulator_state() -> str:
    for process in simulator_processes():
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return "stopped" if state == "T" else "running"
    return "absent"


SIMULATOR_ACTIONS: dict[str, Callable[[], None]] = {
    "stop": lambda: simulator_signal(signal.SIGSTOP),  # requests hang
    "cont": lambda: simulator_signal(signal.SIGCONT),
    "kill": simulator_kill,  # requests are refused
    "start": simulator_start,
    "restart": simulator_restart,
}


# Command line


def status() -> int:
    hosts = hosts_of_testbed()
    containers = json.loads(podman("ps", "--all", "--filter", f"label={LABEL}", "--format", "json"))
    states = {container["Names"][0]: container["State"] for container in containers}
    links = {link["ifname"]: link["operstate"] for link in json.loads(ip("-json", "link"))}
    row = "{:<16} {:<10} {:<15} {:<10} {:<10} {}"
    lines = [row.format("HOST", "SUITE", "ADDRESS", "STATE", "CABLE", "VM")]
    for host in hosts:
        state = states.get(host.instance, "missing")
        cable = "in" if links.get(host.link) == "UP" else "out"
        lines.append(row.format(host.name, host.suite, host.address, state, cable, host.vm["name"]))
    lines.append(f"simulator: {simulator_state()}, control {SIMULATOR_SOCKET}, log {SIMULATOR_LOG}")
    lines.append(f"inventory: {INVENTORY}")
    lines.append(f"ssh: ssh -F {SSH_CONFIG} {hosts[0].name}")
    print("\n".join(lines))
    well = simulator_state() == "running" and all(states.get(host.instance) == "running" for host in hosts)
    return 0 if well else 1


def execute(host: Host, command: Sequence[str]) -> int:
    options = ["--interactive"] + (["--tty"] if sys.stdin.isatty() else [])
    return subprocess.run(
        ["podman", "exec", *options, host.instance, *command], env={**os.environ, **podman_environment()}, check=False
    ).returncode


def make_testbed(arguments: argparse.Namespace) -> None:
    topology = default_topology(arguments.hosts)
    if arguments.topology:
        try:
            topology = json.loads(arguments.topology.read_text())
        except (OSError, ValueError) as error:
            raise TestbedError(f"{arguments.topology}: {error}") from None
    if arguments.time_scale:
        topology.setdefault("settings", {})["time_scale"] = arguments.time_scale
    with one_at_a_time():
        install()
        down()
        try:
            up(topology, arguments.image)
        except BaseException:
            down()
            raise


def suites_argument(text: str) -> list[str]:
    suites = text.split(",")
    for suite in suites:
        if suite not in SUITES:
            raise argparse.ArgumentTypeError(f"{suite} is not one of {', '.join(SUITES)}")
    return suites


def parser() -> argparse.ArgumentParser:
    main_parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = main_parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("check", help="say whether this machine can have a test bed")
    commands.add_parser("install", help="install the Debian packages that the test bed needs")
    sub = commands.add_parser("image", help="build the image of a Debian release, unless it is there")
    sub.add_argument("suites", nargs="?", type=suites_argument, default=["bookworm"], metavar="SUITE[,SUITE…]")
    sub = commands.add_parser("up", help="make hosts and start the simulator; replaces a test bed that is there")
    which = sub.add_mutually_exclusive_group()
    which.add_argument("--hosts", type=int, default=6, metavar="N", help="one set over three update domains (6)")
    which.add_argument("--topology", type=Path, metavar="FILE", help="a topology of the simulator, with its VMs listed")
    sub.add_argument("--time-scale", type=float, metavar="N", help="60: 15 minutes of Azure pass in 15 seconds")
    sub.add_argument(
        "--image", type=suites_argument, default=["bookworm"], metavar="SUITE[,SUITE…]", help="given to hosts in turn"
    )
    commands.add_parser("down", help="remove everything")
    commands.add_parser("status", help="show hosts and simulator; fails unless all run")
    for name, text in (
        ("reboot", "restart a host in good order and wait for it"),
        ("kill", "take its power away"),
        ("start", "switch it on and wait for it"),
        ("freeze", "stop all its processes"),
        ("unfreeze", "let them go on"),
        ("partition", "pull its network cable"),
        ("heal", "put it back"),
        ("exec", "run a command in it, as root"),
    ):
        sub = commands.add_parser(name, help=text)
        sub.add_argument("host", metavar="HOST")
        if name == "freeze":
            sub.add_argument("--seconds", type=float, metavar="S", help="go on by itself after this time")
        if name == "exec":
            sub.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    sub = commands.add_parser("simulator", help="stop (requests hang), cont, kill (they are refused), start, restart")
    sub.add_argument("action", choices=SIMULATOR_ACTIONS)
    return main_parser


def act_on_host(arguments: argparse.Namespace) -> int:
    host = host_named(arguments.host)
    if arguments.command == "freeze":
        freeze(host, arguments.seconds)
    elif arguments.command == "exec":
        words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
        return execute(host, words)
    else:
        actions = (reboot, kill, start, unfreeze, partition, heal)
        {action.__name__: action for action in actions}[arguments.command](host)
    return 0


def dispatch(arguments: argparse.Namespace) -> int:
    check_machine()
    if arguments.command == "check":
        sources(SUITES[0])
    elif arguments.command == "install":
        install()
    elif arguments.command == "image":
        with one_at_a_time():
            install()
            for suite in arguments.suites:
                print(image(suite))
    elif arguments.command == "up":
        make_testbed(arguments)
        return status()
    elif arguments.command == "down":
        with one_at_a_time():
            down()
    elif arguments.command == "status":
        return status()
    elif arguments.command == "simulator":
        hosts_of_testbed()
        SIMULATOR_ACTIONS[arguments.action]()
    else:
        return act_on_host(arguments)
    return 0


def main() -> int:
    # A terminated run cleans up like an interrupted one.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return dispatch(parser().parse_args())
    except CannotRunError as error:
        say(str(error))
        return 1 if os.environ.get("CI", "").lower() in ("1", "true") else EXIT_LEFT_OUT
    except TestbedError as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
