"""Readers of names in certificates, which a client that shows one has chosen."""

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

from tests.fuzz.reader import Reader, Run

_GOLDEN = Path(__file__).parents[2] / "golden/security/principal_names.json"


def _make_names() -> Run:
    """A subject, the other names and the times, or a refusal; the subject is a principal by rules, or none fits."""
    from holdfast.security.der import DerError
    from holdfast.security.dn import alternative_names, issuer, subject
    from holdfast.security.principal_rules import PrincipalRules, RuleError
    from holdfast.security.validity import validity

    rules = PrincipalRules("RULE:^CN=([^,]+),OU=([^,]+).*$/$2.$1/L,RULE:^CN=([^,]+).*$/$1/")

    def run(data: bytes) -> Any:
        for read in (alternative_names, issuer, validity):
            with contextlib.suppress(DerError):
                read(data)
        name = subject(data)
        try:
            return bool(rules.name(name))
        except RuleError:
            return None

    return run


def _corpus() -> list[bytes]:
    return [base64.b64decode(each["certificate"]) for each in json.loads(_GOLDEN.read_text())["subjects"]]


READERS = [
    Reader(
        name="certificate-names",
        reads="subject and other names of a client's certificate, and the rules for principals",
        make=_make_names,
        corpus=_corpus,
        refusals=(ValueError,),
    ),
]
