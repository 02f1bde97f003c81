"""Keys of the authorizer: whether there is one, who may everything, and what holds where no entry says anything.

Values only; who decides is security/authorizer.py (docs/decisions/0057).
"""

from collections.abc import Mapping
from typing import Final

from holdfast.model.config_key import ConfigKey, ConfigType, Form, make_key

CLASS: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
CLASSES: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""Kafka's own two; ours does what they do."""
_PRINCIPAL: Final = r"\s*[^:;\s][^:;]*:[^;]*"

AUTHORIZER_KEYS: Final[tuple[ConfigKey, ...]] = (
    make_key(
        CLASS,
        ConfigType.STRING,
        "",
        "Empty: everybody may do everything. With either of Kafka's names access control lists decide.",
        form=Form(
            pattern="|".join(("", *(name.replace(".", r"\.") for name in CLASSES))),
            words=f"empty, {CLASSES[0]} or {CLASSES[1]}",
        ),
    ),
    make_key(
        SUPER_USERS,
        ConfigType.STRING,
        "",
        "Who may do everything, whatever the access control lists say: principals, by semicolons. Meant for brokers, "
        "and for who makes the first entries.",
        form=Form(pattern=rf"\s*|{_PRINCIPAL}(;{_PRINCIPAL})*;?\s*", words="Type:name, separated by semicolons"),
    ),
    make_key(
        ALLOW_EVERYONE,
        ConfigType.BOOLEAN,
        "false",
        "What no access control list is about, everybody may use.",
    ),
)


def super_users(text: str) -> frozenset[str]:
    """The principals of a value of super.users."""
    return frozenset(part.strip() for part in text.split(";") if part.strip())


def without_authorizer(static: Mapping[str, str]) -> list[str]:
    """What a person should hear: keys of an authorizer where there is none."""
    if static.get(CLASS):
        return []
    keys = (SUPER_USERS, ALLOW_EVERYONE)
    return [f"{key}={static[key]} has no effect: {CLASS} is not given" for key in keys if key in static]
