"""The name of a user, `User:alice` (KafkaPrincipal), and how it follows from a certificate.

subject   ((CN, alice),), ((OU, data),), ((O, example),)       as OpenSSL has it
name      CN=alice,OU=data,O=example                           RFC 2253, last first
rules     RULE:^CN=(.*?),.*$/$1/L, DEFAULT                     the first that matches (KIP-371)
"""

import re
from collections.abc import Iterable, Sequence

from replication.errors import ConfigError
from storage.attributes import frozen

USER = "User:"
ANONYMOUS = "User:ANONYMOUS"

Subject = Sequence[Sequence[tuple[str, str]]]

_SHORT = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|DEFAULT")


def distinguished_name(subject: Subject) -> str:
    """Return the distinguished name of a subject (RFC 2253)."""
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(subject)
    )


def _escaped(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    escaped = re.sub(r"^[ #]", lambda found: f"\\{found[0]}", escaped)
    return re.sub(r" $", r"\\ ", escaped)


@frozen
class MappingRule:
    """A mapping rule: `pattern` must match the whole name; without one, every name stays as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        mapped = re.sub(r"\$(\d)", lambda group: found[int(group[1])] or "", self.replacement)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


def mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """Return the rules of `ssl.principal.mapping.rules`; raise ConfigError for an invalid one."""
    rules, position = [], 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise ConfigError(
                f"ssl.principal.mapping.rules={text}: expected DEFAULT or "
                "RULE:pattern/replacement/[LU], separated by commas"
            )
        rules.append(_rule(text, found))
        position = found.end()
        position += len(re.match(r"\s*,?\s*", text[position:])[0])  # type: ignore[index] # it matches nothing too
    return tuple(rules)


def _rule(text: str, found: re.Match[str]) -> MappingRule:
    if found[1] is None:
        return MappingRule()
    try:
        pattern = re.compile(found[1].replace(r"\/", "/"))
    except re.error as error:
        raise ConfigError(f"ssl.principal.mapping.rules={text}: {error}") from error
    return MappingRule(pattern, found[2], found[3])


def principal_of_subject(subject: Subject | None, rules: Iterable[MappingRule]) -> str:
    """Return the principal of a certificate; ANONYMOUS without one, or if no rule matches."""
    if not subject:
        return ANONYMOUS
    name = distinguished_name(subject)
    for rule in rules:
        if (mapped := rule.apply(name)) is not None:
            return USER + mapped
    return ANONYMOUS
