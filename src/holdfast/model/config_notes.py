"""What a person should hear of a broker's configuration when it starts: keys that come to nothing, and why."""

import difflib
from collections.abc import Iterator

from holdfast.model.config import STORE_EMBEDDED, BrokerConfig
from holdfast.model.config_authorizer_keys import CLASS, SUPER_USERS, super_users, without_authorizer
from holdfast.model.config_id_keys import ADOPT_MISSING, GENERATION, HOST_KEY, RESERVED_MAX
from holdfast.model.config_keys import KEYS, LISTENER_PREFIX, ConfigKey, key_of
from holdfast.model.config_protocol import PROTOCOL_VERSION
from holdfast.model.listeners import Endpoint, SecurityProtocol, is_loopback

_ANONYMOUS = "User:ANONYMOUS"
"""Who speaks where nobody logs in (security/principal.py, which is above this floor)."""

_ANONYMOUS = "User:ANONYMOUS"


def nearest_key(name: str) -> str:
    """For a message: which key was probably meant; empty when none is like it."""
    close = difflib.get_close_matches(name, KEYS, n=1)
    return f": did you mean {close[0]}?" if close else ""


def ineffective(config: BrokerConfig) -> list[str]:
    """What a person should hear when a broker starts: given keys without effect, one line each."""
    lines = [f"{name} is not a key of a broker, it has no effect{nearest_key(name)}" for name in sorted(config.unknown)]
    given = list(_given(config))
    store = config.str("metadata.store")
    others = ("zookeeper.",) if store == STORE_EMBEDDED else ("metadata.log.dir", "metadata.witness.dirs")
    lines += [
        f"{key.name}={text} has no effect: metadata.store is {store}"
        for key, text in given
        if key.name.startswith(others) and key.inert is None
    ]
    if not config.protocol_is_newest and config.optional_str(HOST_KEY) is not None:
        lines.append(f"{HOST_KEY} has no effect: {PROTOCOL_VERSION} is {config.str(PROTOCOL_VERSION)}")
    lines += _about_ids(config)
    lines += _of_no_listener(config)
    lines += without_authorizer(config.static)
    lines += _brokers_that_may_nothing(config)
    lines += [
        f"{key.name}={text} has no effect: {key.inert}" for key, text in given if key.inert is not None and not key.ours
    ]
    return lines


def _brokers_that_may_nothing(config: BrokerConfig) -> Iterator[str]:
    """Where brokers do not log in they are ANONYMOUS, which has to be a super user: until entries are known nobody else
    may do anything, as register at the controller."""
    if not config.str(CLASS) or _ANONYMOUS in super_users(config.str(SUPER_USERS)):
        return
    listening = config.listening
    for endpoint in listening.bound:
        if endpoint.name == listening.inter_broker and endpoint.security_protocol is SecurityProtocol.PLAINTEXT:
            yield (
                f"{SUPER_USERS} does not name {_ANONYMOUS}, who every broker is on listener {endpoint.name}, which is "
                "PLAINTEXT: no broker can register"
            )


def _given(config: BrokerConfig) -> Iterator[tuple[ConfigKey, str]]:
    for name, text in sorted(config.static.items()):
        key = key_of(name)
        assert key is not None, name
        yield key, "[hidden]" if key.sensitive else text


def _of_no_listener(config: BrokerConfig) -> Iterator[str]:
    """Keys of a listener that the broker does not have."""
    names = [endpoint.name for endpoint in config.listeners]
    for key in sorted(config.static):
        listener = key.removeprefix(LISTENER_PREFIX).partition(".")[0]
        if key.startswith(LISTENER_PREFIX) and listener.upper() not in names:
            yield f"{key} has no effect: listener {listener.upper()} is none of {', '.join(names)}"


def open_to_strangers(config: BrokerConfig) -> list[str]:
    """The listeners that others than this machine reach without a login, one line each."""
    guarded = bool(config.optional_str("authorizer.class.name")) and _ANONYMOUS not in config.str("super.users")
    what = f"speaks as {_ANONYMOUS}" if guarded else "may do everything"
    return [
        f"listener {endpoint}: whoever reaches it {what}, as nobody logs in there: expected SASL_SSL, or an address of "
        "this machine alone (docs/security.md)"
        for endpoint in config.listening.bound
        if not is_loopback(endpoint.host) and _takes_everybody(config, endpoint)
    ]


def _takes_everybody(config: BrokerConfig, endpoint: Endpoint) -> bool:
    if endpoint.security_protocol is SecurityProtocol.SSL:
        return config.on_listener(endpoint.name).str("ssl.client.auth") != "required"
    return endpoint.security_protocol is SecurityProtocol.PLAINTEXT


def _about_ids(config: BrokerConfig) -> Iterator[str]:
    """Keys about ids that come to nothing beside node.id, and a node.id that a new broker may get."""
    node, reserved = config.given_id, config.int(RESERVED_MAX)
    if node is None:
        return
    if node > reserved and config.bool(GENERATION):
        yield (
            f"node.id={node} is above {RESERVED_MAX}={reserved}: brokers without one get numbers from there on. "
            f"Expected {reserved} at most, or {GENERATION}=false"
        )
    if config.bool(ADOPT_MISSING):
        yield f"{ADOPT_MISSING}=true has no effect: node.id={node} is given"
