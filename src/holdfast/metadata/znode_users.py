"""SCRAM users and quotas as nodes, as Kafka 3.9 keeps them: a node of configurations for each entity.

    /config/users/alice                      {"version":1,"config":{"SCRAM-SHA-512":"salt=...,stored_key=...,
                                              server_key=...,iterations=4096","producer_byte_rate":"1024"}}
    /config/users/alice/clients/<default>    quotas of a user with a client
    /config/clients/c, /config/ips/10.0.0.1
    /holdfast/scram_secret                   what the salts of users that there are not are made of

Names stand in them with %XX, ``<default>`` is that of all others. A node without anything of ours in it, or below it,
is not there: Kafka leaves such behind, and they are repaired away.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Final
from urllib.parse import quote, unquote

from holdfast.metadata import znode_values as values
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import (
    ClientQuotaRecord,
    MetadataRecord,
    ScramSecretRecord,
    UserScramCredentialRecord,
)
from holdfast.metadata.znode_json import Fields, encode, wrong
from holdfast.metadata.znode_notices import config_change
from holdfast.metadata.znode_writes import CreateNode, DeleteNode, NodeWrite, SetNode
from holdfast.model.errors import MetadataError
from holdfast.security.quota_entities import (
    CLIENT_ID,
    IP,
    OF_ADDRESSES,
    OF_CLIENTS,
    USER,
    QuotaEntity,
    entity_order,
)
from holdfast.security.scram_credential import MECHANISMS, ScramCredential

USERS: Final = "/config/users"
CLIENTS: Final = "/config/clients"
IPS: Final = "/config/ips"
LISTED: Final = (USERS, CLIENTS, IPS)
"""The nodes whose children are entities. Below one of a user there may be another such, ``clients_of``."""
SECRET: Final = "/holdfast/scram_secret"
_KINDS: Final = {USERS: USER, CLIENTS: CLIENT_ID, IPS: IP}
_PARENTS: Final = {kind: parent for parent, kind in _KINDS.items()}
_DEFAULT: Final = "<default>"
_ROOT: Final = "/config/"
_MOST: Final = {**OF_CLIENTS, **OF_ADDRESSES}

# -- where -----------------------------------------------------------------------------------------------------


def _node_name(name: str | None) -> str:
    """As Kafka's Sanitizer, which leaves letters, digits and ``.-_``; and no name of dots alone, which ZooKeeper
    refuses."""
    if name is None:
        return _DEFAULT
    text = quote(name, safe="").replace("~", "%7E")
    return text.replace(".", "%2E") if text in (".", "..") else text


def path_of(entity: QuotaEntity) -> str:
    """The node of an entity."""
    kind, name = entity[0]
    own = f"{_PARENTS[kind]}/{_node_name(name)}"
    return own if len(entity) == 1 else f"{own}/clients/{_node_name(entity[1][1])}"


def entity_at(path: str) -> QuotaEntity | None:
    """The entity of a node; None: it is not one that ``path_of`` names."""
    words = path.removeprefix(_ROOT).split("/")
    if len(words) == 2:
        kind = _KINDS.get(_ROOT + words[0])
        entity: QuotaEntity = () if kind is None else ((kind, _name(words[1])),)
    elif len(words) == 4 and words[0] == "users" and words[2] == "clients":
        entity = ((USER, _name(words[1])), (CLIENT_ID, _name(words[3])))
    else:
        return None
    return entity if entity and path_of(entity) == path else None


def _name(word: str) -> str | None:
    return None if word == _DEFAULT else unquote(word)


def is_user(path: str) -> bool:
    """Whether it is the node of a user."""
    return path.startswith(USERS + "/") and "/" not in path[len(USERS) + 1 :]


def clients_of(user: str) -> str:
    """The node above the clients of a user's node, whose children are entities, too."""
    return f"{user}/clients"


# -- what ------------------------------------------------------------------------------------------------------


def _config(image: ClusterImage, entity: QuotaEntity) -> dict[str, str]:
    kind, name = entity[0]
    found = {key: _number(key, value) for key, value in image.quotas.of(entity).items()}
    if kind == USER and name is not None and len(entity) == 1:
        for mechanism, credential in image.users.of(name).items():
            found[mechanism.sasl_name] = _credential_text(credential)
    return found


def _number(key: str, value: float) -> str:
    """Whole numbers as such, where the quota is one."""
    return str(int(value)) if _MOST.get(key) is not None and value.is_integer() else repr(value)


def _credential_text(credential: ScramCredential) -> str:
    parts = {"salt": credential.salt, "stored_key": credential.stored_key, "server_key": credential.server_key}
    coded = ",".join(f"{key}={base64.b64encode(value).decode()}" for key, value in parts.items())
    return f"{coded},iterations={credential.iterations}"


def _read_credential(path: str, mechanism: str, text: str) -> ScramCredential:
    """What is wrong with it is said without it."""
    expected = "salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=NUMBER"
    said = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        keys = [base64.b64decode(said[key], validate=True) for key in ("salt", "stored_key", "server_key")]
        iterations = int(said["iterations"])
    except (KeyError, ValueError, binascii.Error):
        raise wrong(path, f"config.{mechanism} cannot be read", expected) from None
    if not 0 < iterations < 2**31:
        raise wrong(path, f"config.{mechanism} has {iterations} iterations", expected)
    return ScramCredential(salt=keys[0], stored_key=keys[1], server_key=keys[2], iterations=iterations)


def _secret_node(secret: bytes) -> bytes:
    return encode({"version": 1, "secret": base64.b64encode(secret).decode()})


# -- writing ---------------------------------------------------------------------------------------------------


def writes(before: ClusterImage, after: ClusterImage, touched: Iterable[QuotaEntity]) -> Iterator[NodeWrite]:
    """What makes the nodes of ``after`` from those of ``before``, where these entities may differ: what goes before
    what comes, children deleted before parents and made after them; then the news."""
    if before.users.secret != after.users.secret:
        data = _secret_node(after.users.secret)
        is_there = bool(before.users.secret)
        yield SetNode(path=SECRET, data=data) if is_there else CreateNode(path=SECRET, data=data)
    entities = list(touched)
    if not entities:
        return
    was, now = _Nodes(before), _Nodes(after)
    paths = dict.fromkeys(path for entity in entities for path in _with_parents(entity))
    for path in sorted(paths, key=len, reverse=True):
        if path in was and path not in now:
            yield DeleteNode(path=path)
    for path in sorted(paths, key=len):
        if path in now:
            data = now.data(path)
            if path not in was:
                yield CreateNode(path=path, data=data)
            elif was.data(path) != data:
                yield SetNode(path=path, data=data)
    for entity in entities:
        if was.config(entity) != now.config(entity):
            yield config_change(path_of(entity).removeprefix(_ROOT))


def _with_parents(entity: QuotaEntity) -> Iterator[str]:
    if len(entity) > 1:
        user = path_of(entity[:1])
        yield user
        yield clients_of(user)
    yield path_of(entity)


class _Nodes:
    """The nodes of an image, made when they are looked at."""

    __slots__ = ("_configs", "_image", "_with_clients")

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._with_clients = {path_of(((USER, user),)) for user in image.quotas.users_with_clients()}
        self._configs: dict[QuotaEntity, dict[str, str]] = {}

    def __contains__(self, path: str) -> bool:
        entity = entity_at(path)
        if entity is None:
            return path.removesuffix("/clients") in self._with_clients
        return path in self._with_clients or bool(self.config(entity))

    def config(self, entity: QuotaEntity) -> dict[str, str]:
        found = self._configs.get(entity)
        if found is None:
            found = self._configs[entity] = _config(self._image, entity)
        return found

    def data(self, path: str) -> bytes:
        entity = entity_at(path)
        config = None if entity is None else self.config(entity)
        return values.config_node(config) if config else b""


# -- reading ---------------------------------------------------------------------------------------------------


def read(nodes: Mapping[str, bytes]) -> tuple[list[MetadataRecord], list[DeleteNode]]:
    """The records of these nodes, in the order of ClusterImage.to_records, and what is there for nothing. Other nodes
    may be among them."""
    records: list[MetadataRecord] = []
    secret = nodes.get(SECRET)
    if secret:
        records.append(ScramSecretRecord(secret=_read_secret(secret)))
    users: list[UserScramCredentialRecord] = []
    quotas: list[ClientQuotaRecord] = []
    needed: set[str] = set()
    ours = [path for path in nodes if path.startswith(tuple(f"{parent}/" for parent in LISTED))]
    for path in ours:
        entity = entity_at(path)
        if entity is None:
            continue
        config = _read_config(path, nodes[path])
        found = len(users) + len(quotas)
        users += _read_users(path, entity, config)
        quotas += _read_quotas(path, entity, config)
        if len(users) + len(quotas) > found:
            needed.update(_with_parents(entity))
    users.sort(key=lambda record: (record.name, record.mechanism))
    quotas.sort(key=lambda record: (entity_order(record.entity), record.key))
    for_nothing = sorted((path for path in ours if path not in needed and _is_ours(path)), key=len, reverse=True)
    return [*records, *users, *quotas], [DeleteNode(path=path) for path in for_nothing]


def _read_config(path: str, data: bytes) -> Mapping[str, str]:
    """There may be keys of users in it: so no error shows what it says."""
    try:
        return values.read_config_node(path, data)
    except MetadataError:
        raise wrong(path, "cannot be read", 'JSON with "config", an object of strings') from None


def _is_ours(path: str) -> bool:
    if entity_at(path) is not None:
        return True
    user = path.removesuffix("/clients")
    return user != path and is_user(user) and entity_at(user) is not None


def _read_users(path: str, entity: QuotaEntity, config: Mapping[str, str]) -> Iterator[UserScramCredentialRecord]:
    name = entity[0][1]
    if len(entity) > 1 or entity[0][0] != USER or name is None:
        return
    for key, mechanism in MECHANISMS.items():
        if key in config:
            credential = _read_credential(path, key, config[key])
            yield UserScramCredentialRecord(name=name, mechanism=mechanism, credential=credential)


def _read_quotas(path: str, entity: QuotaEntity, config: Mapping[str, str]) -> Iterator[ClientQuotaRecord]:
    for key in OF_ADDRESSES if entity[0][0] == IP else OF_CLIENTS:
        if key in config:
            try:
                value = float(config[key])
            except ValueError:
                value = float("nan")
            if not isfinite(value):
                raise wrong(path, f"config.{key} is {config[key][:80]!r}", "a number")
            yield ClientQuotaRecord(entity=entity, key=key, value=value)


def _read_secret(data: bytes) -> bytes:
    try:
        return base64.b64decode(Fields.of(SECRET, data).text("secret"), validate=True)
    except (MetadataError, binascii.Error):
        raise wrong(SECRET, "secret cannot be read", "BASE64") from None
