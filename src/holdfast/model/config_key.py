"""What a configuration key is: its name, type, default, range, who may change it, and what it means.

Values only; the tables are model/config_keys.py, model/config_inert.py and model/config_topic_keys.py.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class ConfigType(Enum):
    """What a value is; the names are Kafka's."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


class UpdateMode(Enum):
    """Who may change a broker key while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What the text of a value looks like, where neither a range nor a list of choices says it: a regular expression
    for all of it, and the same in words."""

    pattern: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key. ``default`` is text as in a properties file; None means that there is no value by default.

    ``low`` and ``high`` bound a number, ``choices`` a string or each entry of a list, ``form`` the text as a whole.
    ``inert`` says why nothing here goes by the key; with ``only_default`` another value would ask for what is not
    there, and is refused. With ``per_listener`` a listener may have a value of its own: ``listener.name.NAME.KEY``,
    the name in small letters.
    """

    name: str
    type: ConfigType
    default: str | None
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    form: Form | None = None
    update: UpdateMode = UpdateMode.READ_ONLY
    internal: bool = False
    ours: bool = False
    inert: str | None = None
    only_default: bool = False
    per_listener: bool = False

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def range(self) -> str:
        """The allowed values as a person reads them; empty when every value of the type is allowed."""
        if self.only_default:
            return f"only {self.default}" if self.default else "only empty"
        if self.form is not None:
            return self.form.words
        if self.choices:
            return ", ".join(self.choices)
        if self.low is None:
            return ""
        low = _number(self.low)
        return f">= {low}" if self.high is None else f"{low} to {_number(self.high)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def make_key(
    name: str,
    kind: ConfigType,
    default: str | int | None,
    doc: str,
    low: float | None = None,
    *,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    form: Form | None = None,
    update: UpdateMode = UpdateMode.READ_ONLY,
    internal: bool = False,
    ours: bool = False,
    inert: str | None = None,
    only_default: bool = False,
    per_listener: bool = False,
) -> ConfigKey:
    """One row; defaults as numbers where they are numbers."""
    text = None if default is None else str(default)
    return ConfigKey(
        name=name,
        type=kind,
        default=text,
        doc=doc,
        low=low,
        high=high,
        choices=choices,
        form=form,
        update=update,
        internal=internal,
        ours=ours,
        inert=inert,
        only_default=only_default,
        per_listener=per_listener,
    )
