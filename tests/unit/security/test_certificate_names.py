"""What a client's certificate is called: as Java and Kafka 4.3.0 call it, and no crash for what is no certificate.

tests/golden/security/principal_names.json was written by Java 17 (``getSubjectX500Principal().getName()``) and Kafka's
own mapper of names, for certificates with every odd subject that was thought of.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from holdfast.security import dn
from holdfast.security.der import Der, DerError, one, values
from holdfast.security.principal_rules import PrincipalRules, RuleError
from holdfast.security.validity import shown_time, validity
from tests.certificates import Authority

GOLDEN: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "golden/security/principal_names.json").read_text()
)


@pytest.mark.parametrize("case", GOLDEN["subjects"], ids=lambda case: ascii(case["name"]))
def test_subjects_are_written_as_java_writes_them(case: dict[str, str]) -> None:
    assert dn.subject(base64.b64decode(case["certificate"])) == case["name"]


@pytest.mark.parametrize("case", GOLDEN["rules"], ids=lambda case: case["rules"])
def test_rules_do_what_kafka_does(case: dict[str, Any]) -> None:
    if "refused" in case:
        with pytest.raises(RuleError):
            PrincipalRules(case["rules"])
        return
    rules = PrincipalRules(case["rules"])
    for subject, name in case["names"].items():
        if name is None:
            with pytest.raises(RuleError):
                rules.name(subject)
        else:
            assert rules.name(subject) == name


@pytest.mark.parametrize("rules", [r"RULE:^CN=\p{Lu}.*$/x/", r"RULE:a(?i)b/x/"])
def test_what_only_java_reads_is_refused(rules: str) -> None:
    with pytest.raises(RuleError, match="is no regular expression"):
        PrincipalRules(rules)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "pattern",
    [
        r"CN=([a-z&&[def]]+).*", r"CN=[[a-c]x]+", r"CN=[a-z&&b]", r"CN=[a-z--b]+", r"CN=\0101", r"CN=\101",
        r"CN=[\101]",
        r"CN=(a)\11", r"CN=(?P<n>.*)", r"CN=(?P<n>a)(?P=n)", r"CN=(?#c)a", r"CN=(a)?(?(1)a|b)", r"CN=a{,3}", r"CN=a{2",
        r"CN={a", r"CN=a{b}", r"CN=\v", r"CN=[\b]", r"CN=\N{DIGIT ONE}", r"CN=\U00000041", r"(?x)CN= .*", r"(?m)CN=.*",
        r"(?u)CN=.*", r"(?a)CN=.*", r"CN=(?s:.*)", r"CN=(?i)a", r"CN=\cA", r"CN=\Qa\E", r"CN=[a", r"CN=(?<a_1>.)",
        r"CN=a{99999999999}", r"CN=\x4", r"CN=\u004", r"CN=(a)\2", "CN=a\\",
    ],
)  # fmt: skip
def test_what_java_reads_otherwise_or_not_at_all_is_refused(pattern: str) -> None:
    with pytest.raises(RuleError):
        PrincipalRules(f"RULE:{pattern}/x/")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("rule", "subject", "name"),
    [
        # What java.util.regex and Kafka's mapper made of them.
        ("RULE:^CN=(.*?),.*$/$1/,DEFAULT", "CN=admin\u2028x,O=y", "CN=admin\u2028x,O=y"),
        ("RULE:^CN=(.*)$/$1/,DEFAULT", "CN=a\rb", "CN=a\rb"),
        ("RULE:^CN=(.*)$/$1/,DEFAULT", "CN=a\x85", "CN=a\x85"),
        ("RULE:^CN=(.*)$/$1/,DEFAULT", "CN=a\n", "CN=a\n"),
        (r"RULE:^CN=(.*)\Z/$1/,DEFAULT", "CN=a\n", "CN=a\n"),
        ("RULE:^CN=([^,=]+)$/$1/,DEFAULT", "CN=admin\n", "admin\n"),
        ("RULE:CN=a$\r\n/x/,DEFAULT", "CN=a\r\n", "x"),
        ("RULE:CN=a\r$\n/x/,DEFAULT", "CN=a\r\n", "CN=a\r\n"),
        ("RULE:CN=a\\z\n/x/,DEFAULT", "CN=a\n", "CN=a\n"),
        ("RULE:CN=a\\Z\n/x/,DEFAULT", "CN=a\n", "x"),
        ("RULE:(?s)CN=(.*)/$1/", "CN=a\r\u2029b", "a\r\u2029b"),
        ("RULE:(?is)cn=(.*)/$1/", "CN=a\nb", "a\nb"),
        ("RULE:CN=[a||b]+/x/", "CN=|", "x"),
        ("RULE:CN=[a~~b]+/x/", "CN=~", "x"),
        ("RULE:CN=[a&b]+/x/", "CN=&", "x"),
        ("RULE:CN=[^]a]/x/", "CN=b", "x"),
        ("RULE:CN=[]a]+/x/", "CN=]a", "x"),
        ("RULE:CN=[.$]+/x/", "CN=.$", "x"),
        ("RULE:CN=a}]/x/", "CN=a}]", "x"),
        ("RULE:CN=a{2}b{0,}c{1,2}/x/", "CN=aac", "x"),
        (r"RULE:CN=(?<n>.)\1-.*/${n}/", "CN=aa-b", "a"),
        (r"RULE:CN=(?i:A)(?-i:b)\x41\u0041\_/x/", "CN=abAA_", "x"),
        ("RULE:.*?/-/", "ab", "-a-b-"),
        ("RULE:(a|b)*/-/", "ab", "--"),
        ("RULE:CN=(?>a|b)a++/x/", "CN=baa", "x"),
    ],
)
def test_patterns_mean_what_they_mean_in_java(rule: str, subject: str, name: str) -> None:
    assert PrincipalRules(rule).name(subject) == name


def test_errors_name_what_was_expected() -> None:
    with pytest.raises(RuleError, match=re.escape("'NOPE': expected DEFAULT or RULE:PATTERN/REPLACEMENT/[LU]")):
        PrincipalRules("DEFAULT, NOPE")
    with pytest.raises(RuleError, match=re.escape("no rule of ssl.principal.mapping.rules fits CN=a")):
        PrincipalRules("RULE:^O=.*/x/").name("CN=a")


@pytest.mark.parametrize("replacement", ["$", "$x", "a\\", "${no}", "$5", "$1$99999999999"])
def test_replacements_that_java_would_not_take_fail(replacement: str) -> None:
    with pytest.raises(RuleError):
        PrincipalRules(f"RULE:CN=a(b?)|(CN)()/{replacement}/").name("CN=a") if replacement != "$5" else PrincipalRules(
            "RULE:CN=a/$5/"
        ).name("CN=a")


NAMED = (
    NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME, NameOID.STREET_ADDRESS, NameOID.USER_ID,
)  # fmt: skip
# 64 bytes are what a certificate may have there.
TEXT = st.text(st.characters(min_codepoint=0x20, exclude_categories=("Cs", "Cc")), min_size=1, max_size=16)
PARTS = st.lists(
    st.lists(st.tuples(st.sampled_from(NAMED), TEXT), min_size=1, max_size=3, unique_by=lambda pair: pair[0]),
    min_size=1,
    max_size=5,
)


@given(PARTS)
def test_a_name_is_read_back_as_it_was(parts: list[list[tuple[x509.ObjectIdentifier, str]]]) -> None:
    """By another reader of that form."""
    name = x509.Name([x509.RelativeDistinguishedName([x509.NameAttribute(*pair) for pair in part]) for part in parts])
    written = dn.rfc2253(one(name.public_bytes()))
    assert x509.Name.from_rfc4514_string(written) == name


@given(st.binary(max_size=200))
def test_any_bytes_are_a_name_or_refused(data: bytes) -> None:
    for read in (dn.subject, dn.alternative_names):
        try:
            read(data)
        except DerError:
            continue


@given(st.data())
def test_a_certificate_that_was_changed_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(base64.b64decode(data.draw(st.sampled_from(GOLDEN["subjects"]))["certificate"]))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    for read in (dn.subject, dn.alternative_names):
        try:
            read(cut)
        except DerError:
            continue


def test_the_other_names_of_a_certificate() -> None:
    authority = Authority.make()

    def names(*hosts: str) -> frozenset[bytes]:
        return dn.alternative_names(authority.issue("a", hosts=hosts).certificate.public_bytes(Encoding.DER))

    assert names() == frozenset()
    assert names("a.example", "127.0.0.1") == {b"\x82\x09a.example", b"\x87\x04\x7f\x00\x00\x01"}
    assert names("b.example", "a.example") > names("a.example")


@pytest.mark.parametrize(
    "data",
    [
        b"\x30", b"\x30\x05", b"\x30\x81", b"\x30\x85\x01\x01\x01\x01\x01", b"\x1f\x01\x00", b"\x30\x00\x30\x00", b"",
        b"\x30\x02\x30\x00", b"\x30\x00", b"\x30\x04\x30\x02\xa0\x00",
    ],
)  # fmt: skip
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(DerError):
        dn.subject(data)


@pytest.mark.parametrize("tag", [0x06, 0x30])
def test_object_identifiers(tag: int) -> None:
    with pytest.raises(DerError):
        _ = Der(tag, b"\x88", b"").object_id
    with pytest.raises(DerError):
        Der(tag, b"", b"").inside(0x31)
    (large,) = values(b"\x06\x03\x88\x37\x03")
    assert large.object_id == "2.999.3"
    with pytest.raises(DerError):
        dn.rfc2253(one(b"\x30\x02\x31\x00"))
    with pytest.raises(DerError):
        dn.rfc2253(one(b"\x30\x04\x31\x02\x30\x00"))


def test_when_a_certificate_begins_and_ends() -> None:
    """In both forms of time: before 2050 years have two digits."""
    authority = Authority.make()
    for ends in (dt.datetime(2049, 12, 31, 23, 59, 59, tzinfo=dt.UTC), dt.datetime(2050, 1, 1, tzinfo=dt.UTC)):
        made = authority.issue("broker", ends=ends).certificate
        found = validity(made.public_bytes(Encoding.DER))
        assert found.begins_s == made.not_valid_before_utc.timestamp()
        assert found.ends_s == ends.timestamp()
        assert shown_time(found.ends_s) == ends.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert dn.issuer(made.public_bytes(Encoding.DER)) == "CN=Authority of tests"
