"""`sasl.jaas.config`: a login in the form of a JAAS file.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password="secret" user_admin="secret" user_alice="sesame";

On a server, the options `user_NAME` are the users of PLAIN; `username` and `password` are the
login that the node itself uses when it connects. The name of the module is ignored, because the
mechanism is known.
"""

import re
from collections.abc import Mapping

import attrs

from replication.errors import ConfigError

_FORM = re.compile(
    r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)((?:\s+\S.*)?);\s*", re.DOTALL
)
_OPTION = re.compile(r'\s+([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^\s"\';]+))')
_USER = "user_"


@attrs.frozen
class Jaas:
    """The options of a login module."""

    module: str
    options: Mapping[str, str] = attrs.field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """The passwords of the users of PLAIN, by name (PlainServerCallbackHandler)."""
        return {
            name.removeprefix(_USER): value
            for name, value in self.options.items()
            if name.startswith(_USER)
        }

    @classmethod
    def parse(cls, text: str, *, key: str) -> "Jaas":
        """Parse `text`.

        Raise ConfigError, which names `key` and quotes nothing of `text`, which may hold passwords.
        """
        form = _FORM.fullmatch(text)
        if form is None:
            raise ConfigError(f'{key}: expected LoginModule required name="value" ...;')
        module, _, rest = form.groups()
        options: dict[str, str] = {}
        position = 0
        while found := _OPTION.match(rest, position):
            name, quoted, single, bare = found.groups()
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else single or bare
            options[name] = value or ""
            position = found.end()
        if rest[position:].strip():
            raise ConfigError(f'{key}: expected name="value" for each option, and a ; at the end')
        return cls(module, options)
