"""What counts as an address, in which parts, and which machines are public."""

import pytest

from pairwright.tasks.store.addresses import Address, RefusedAddressError, is_public, parse_address


@pytest.mark.parametrize(
    ("text", "address", "authority"),
    [
        ("http://x.example", Address("http", "x.example", 80, "/"), "x.example"),
        (" HTTPS://X.Example:8443/a b?q=ü#part\n", Address("https", "x.example", 8443, "/a%20b?q=%C3%BC"), None),
        ("http://bücher.example/%41?a=%2F&b=?", Address("http", "xn--bcher-kva.example", 80, "/%41?a=%2F&b=?"), None),
        ("http://[2606:4700::1]:81/", Address("http", "2606:4700::1", 81, "/"), "[2606:4700::1]:81"),
        ("https://x.example:443/", Address("https", "x.example", 443, "/"), "x.example"),
        ("http://x.example/a\r\nHost: evil", Address("http", "x.example", 80, "/aHost:%20evil"), None),
    ],
)
def test_the_parts_of_an_address(text, address, authority):
    assert parse_address(text) == address
    assert parse_address(address.url) == address
    if authority:
        assert address.authority == authority


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not an http address"),
        ("x.example/a.jpg", "not an http address"),
        ("file:///etc/passwd", "not an http address"),
        ("ftp://x.example/a", "not an http address"),
        ("gopher://x.example/a", "not an http address"),
        ("data:image/png;base64,AAAA", "not an http address"),
        ("//x.example/a", "not an http address"),
        ("http://user:secret@x.example/", "credentials in the address"),
        ("http://user@x.example/", "credentials in the address"),
        ("http://x.example\\@evil.example/", "credentials in the address"),
        ("http:///a.jpg", "damaged address"),
        ("http://x.example:port/", "damaged address"),
        ("http://x.example:99999/", "damaged address"),
        ("http://x.example\\.evil.example/", "damaged address"),
        ("http://127.0.0.1%2f.x.example/", "damaged address"),
        ("http://x..example/", "damaged address"),
        ("http://x example/", "damaged address"),
        ("http://[::1/", "damaged address"),
        ("http://[fe80::1%25eth0]/", "damaged address"),
        ("http://[not-an-address]/", "damaged address"),
        (f"http://{'a' * 64}.example/", "damaged address"),
        ("http://" + "a." * 130 + "example/", "damaged address"),
        ("http://x.example/" + "a" * 9000, "damaged address"),
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(text, reason):
    with pytest.raises(RefusedAddressError) as caught:
        parse_address(text)
    assert caught.value.reason == reason
    assert "secret" not in f"{caught.value} {caught.value.detail}"


def test_what_is_shown_holds_no_query():
    assert parse_address("https://x.example:8/a?key=secret").shown == "https://x.example:8/a?..."


def test_redirects_are_relative_to_where_they_are_met():
    address = parse_address("https://x.example/a/b?c")
    assert address.join("../d").url == "https://x.example/d"
    assert address.join("//y.example/d").url == "https://y.example/d"
    for location in ("file:///etc/passwd", "http://user:secret@y.example/", "http://[::1"):
        with pytest.raises(RefusedAddressError):
            address.join(location)


@pytest.mark.parametrize("text", ["8.8.8.8", "1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "2a00:1450:4001::1"])
def test_public_machines(text):
    assert is_public(text)


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "127.255.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "192.0.0.8", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1"),
        *("203.0.113.1", "224.0.0.1", "233.1.1.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "fc00::1", "fd12::1", "ff02::1", "100::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1"),
        *("2002:7f00:1::", "2001::1", "2001:db8::1", "3fff::1", "5f00::1", "4000::1", "8000::1"),
        *("2606:4700::1%eth0", "localhost", "", "8.8.8.8.", "0x7f.1", "2130706433"),
    ],
)
def test_every_other_machine_is_refused(text):
    assert not is_public(text)


def test_a_public_address_stays_public_where_it_is_mapped():
    assert is_public("::ffff:8.8.8.8")
