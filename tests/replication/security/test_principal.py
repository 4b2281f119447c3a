"""The principal of a certificate."""

import pytest

from replication.config.security import Jaas
from replication.errors import ConfigError
from replication.security.rules.principal import (
    distinguished_name,
    mapping_rules,
    principal_of_subject,
)

SUBJECT = (
    (("countryName", "NL"),),
    (("organizationName", "Ex, Inc"),),
    (("commonName", "Alice"),),
)


def test_a_subject_is_written_last_part_first() -> None:
    assert distinguished_name(SUBJECT) == "CN=Alice,O=Ex\\, Inc,C=NL"


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "User:CN=Alice,O=Ex\\, Inc,C=NL"),
        ("RULE:^CN=(.*?),.*$/$1/", "User:Alice"),
        ("RULE:^CN=(.*?),.*$/$1/L", "User:alice"),
        ("RULE:^CN=(.*?),.*$/$1@x/U, DEFAULT", "User:ALICE@X"),
        ("RULE:^OU=(.*)$/$1/,DEFAULT", "User:CN=Alice,O=Ex\\, Inc,C=NL"),
        ("RULE:^OU=(.*)$/$1/", "User:ANONYMOUS"),
    ],
)
def test_the_first_rule_that_fits_names_it(rules: str, principal: str) -> None:
    assert principal_of_subject(SUBJECT, mapping_rules(rules)) == principal


def test_a_client_without_a_certificate_is_anonymous() -> None:
    assert principal_of_subject(None, mapping_rules("DEFAULT")) == "User:ANONYMOUS"


@pytest.mark.parametrize("rules", ["RULE:x", "RULE:(/x/", "default", "RULE:a/b/X"])
def test_rules_in_no_form_of_theirs_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        mapping_rules(rules)


def test_a_login_module_is_read_as_java_writes_it() -> None:
    jaas = Jaas.parse(
        'org.example.PlainLoginModule required\n username="admin" password="a \\"b\\";c"'
        " user_admin=x user_alice='s e';",
        key="k",
    )
    assert jaas.options["username"] == "admin"
    assert jaas.options["password"] == 'a "b";c'
    assert jaas.users == {"admin": "x", "alice": "s e"}
    assert "admin" not in repr(jaas)


@pytest.mark.parametrize("text", ["", "x", "M required a=b", "M required a;", "M maybe a=b;"])
def test_a_login_module_in_another_form_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^k: expected") as refused:
        Jaas.parse(text, key="k")
    assert "a=b" not in str(refused.value)
