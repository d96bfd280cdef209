# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import os

import pytest

from ansible_collections.azops.maintenance.plugins.module_utils._endpoint import (
    LEASE_FILES,
    Endpoint,
    address_in_leases,
    candidate_endpoints,
    parse_endpoint,
)
from ansible_collections.azops.maintenance.plugins.module_utils._errors import InputError

DHCLIENT = """\
lease {{
  interface "eth0";
  fixed-address 10.0.0.4;
  option subnet-mask 255.255.255.0;
  option {option} {value};
  renew 4 2026/03/05 00:11:22;
}}
"""
NETWORKD = """\
# This is private data. Do not parse.
ADDRESS=10.0.0.4
NETMASK=255.255.255.0
OPTION_245={value}
"""


def dhclient(value, option="unknown-245"):
    return DHCLIENT.format(option=option, value=value)


def networkd(value):
    return NETWORKD.format(value=value)


@pytest.mark.parametrize(
    "text, endpoint, url",
    [
        ("http://169.254.169.254", Endpoint("169.254.169.254"), "http://169.254.169.254"),
        ("http://169.254.169.254/", Endpoint("169.254.169.254"), "http://169.254.169.254"),
        ("HTTP://LocalHost:8080/vm/web_0/", Endpoint("localhost", 8080, "/vm/web_0"), "http://localhost:8080/vm/web_0"),
        (" http://127.0.0.1:80 \n", Endpoint("127.0.0.1"), "http://127.0.0.1"),
        ("http://[::1]:8080/a", Endpoint("::1", 8080, "/a"), "http://[::1]:8080/a"),
        ("http://host:/x", Endpoint("host", 80, "/x"), "http://host/x"),
    ],
)
def test_a_url_with_optional_port_and_prefix_is_understood(text, endpoint, url):
    assert parse_endpoint(text) == endpoint
    assert parse_endpoint(text).url == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "169.254.169.254",
        "https://169.254.169.254",
        "ftp://host",
        "http://",
        "http:///path",
        "http://host:99999",
        "http://host:port",
        "http://host:-1",
        "http://host:0",
        "http://[::1",
        "http://user:secret@host",
        "http://@host",
        "http://host?x=1",
        "http://host/#part",
        "http://host/a b",
        "http://host/\u00fc",
        "http://host/a\rb",
        "http://ho st",
        "http://ho\x00st",
        "http://ho\x7fst",
        "auto matic",
    ],
)
def test_a_bad_endpoint_is_refused_with_what_to_give_instead(text):
    with pytest.raises(InputError) as caught:
        parse_endpoint(text)
    assert repr(text) in str(caught.value)
    assert "http://HOST[:PORT][/PREFIX]" in caught.value.remedy
    assert "secret" not in str(caught.value).replace(repr(text), "")


def test_only_azures_own_address_counts_as_azure():
    assert parse_endpoint("http://169.254.169.254/").is_azure
    assert Endpoint("168.63.129.16", from_dhcp=True).is_azure
    assert not parse_endpoint("http://168.63.129.16").is_azure
    assert not parse_endpoint("http://169.254.169.254:8080").is_azure
    assert not parse_endpoint("http://169.254.169.254/vm").is_azure


def test_a_given_url_is_the_only_candidate(tmp_path):
    (tmp_path / "lease").write_text(networkd("a83f8110"))
    assert candidate_endpoints("http://host", [str(tmp_path / "*")]) == [Endpoint("host")]


@pytest.mark.parametrize("spelling", ["auto", "AUTO", " auto "])
def test_auto_tries_the_well_known_address_then_the_leased_one(spelling, tmp_path):
    assert candidate_endpoints(spelling, [str(tmp_path / "*")]) == [Endpoint("169.254.169.254")]
    (tmp_path / "lease").write_text(networkd("a83f8110"))
    assert candidate_endpoints(spelling, [str(tmp_path / "*")]) == [
        Endpoint("169.254.169.254"),
        Endpoint("168.63.129.16", from_dhcp=True),
    ]


@pytest.mark.parametrize(
    "content",
    [
        dhclient("a8:3f:81:10"),
        dhclient("A8:3F:81:10"),
        dhclient("168.63.129.16"),
        dhclient("a8:3f:81:10", option="option-245"),
        dhclient("a8:3f:81:10", option="private-245"),
        networkd("a83f8110"),
        networkd("a8:3f:81:10"),
        dhclient("a8:3f:81:10").replace("\n", "\r\n"),
        "\x00\xff" + dhclient("a8:3f:81:10"),
    ],
)
def test_option_245_is_found_in_every_spelling(content, tmp_path):
    (tmp_path / "lease").write_bytes(content.encode("latin-1"))
    assert address_in_leases([str(tmp_path / "*")]) == "168.63.129.16"


@pytest.mark.parametrize(
    "content",
    [
        "",
        dhclient("a8:3f:81"),
        dhclient("a8:3f:81:10:99"),
        dhclient("168.63.129.999"),
        dhclient("a83f:8110"),
        dhclient("..."),
        dhclient(":"),
        dhclient("a8:3f:81:10", option="unknown-24"),
        networkd(""),
        networkd("a83f811"),
        "# OPTION_245=a83f8110\n",
        "\x00" * 100,
    ],
)
def test_a_lease_without_a_usable_option_245_gives_no_address(content, tmp_path):
    (tmp_path / "lease").write_bytes(content.encode("latin-1"))
    assert address_in_leases([str(tmp_path / "*")]) is None


def test_the_newest_lease_file_wins_and_the_last_lease_in_it(tmp_path):
    old, new, newest = (tmp_path / name for name in ("c.lease", "b.lease", "a.lease"))
    old.write_text(dhclient("0a:00:00:01"))
    new.write_text(dhclient("0a:00:00:02") + dhclient("0a:00:00:03"))
    newest.write_text("lease { }")
    for age, path in enumerate((newest, new, old)):
        os.utime(str(path), (1000000 - age, 1000000 - age))
    assert address_in_leases([str(tmp_path / "*.lease")]) == "10.0.0.3"
    os.utime(str(old), (2000000, 2000000))
    assert address_in_leases([str(tmp_path / "*.lease")]) == "10.0.0.1"


def test_a_damaged_last_lease_does_not_hide_the_one_before(tmp_path):
    (tmp_path / "lease").write_text(dhclient("0a:00:00:01") + dhclient("0a:00"))
    assert address_in_leases([str(tmp_path / "*")]) == "10.0.0.1"


def test_what_cannot_be_read_is_passed_over(tmp_path):
    (tmp_path / "directory").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "lease").write_text(networkd("0a000001"))
    assert address_in_leases([str(tmp_path / "*")]) == "10.0.0.1"


def test_the_lease_files_of_all_three_dhcp_clients_are_looked_at():
    for part in ("/run/systemd/netif/leases/", "/dhclient", "/var/lib/dhcp/", "/var/lib/NetworkManager/"):
        assert any(part in pattern for pattern in LEASE_FILES)
