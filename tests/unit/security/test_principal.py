"""Principals and names of rights, as Kafka writes them."""

import pytest

from holdfast.security.principal import ANONYMOUS, Principal
from holdfast.security.resources import Operation, ResourceKind


def test_a_principal_is_a_type_and_a_name() -> None:
    assert Principal.parse("User:CN=a,O=b:c") == Principal.user("CN=a,O=b:c")
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert Principal.parse("user:a") != Principal.parse("User:a")


@pytest.mark.parametrize("text", ["", "alice", ":alice"])
def test_another_form_is_no_principal(text: str) -> None:
    with pytest.raises(ValueError, match="expected Type:name"):
        Principal.parse(text)


def test_names_are_those_of_commands_and_of_audit_lines() -> None:
    assert (Operation.DESCRIBE_CONFIGS.acl_name, Operation.DESCRIBE_CONFIGS.log_name) == (
        "DescribeConfigs",
        "DESCRIBE_CONFIGS",
    )
    assert ResourceKind.TRANSACTIONAL_ID.acl_name == "TransactionalId"
