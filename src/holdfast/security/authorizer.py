"""Decides who may do what by access control lists, as Kafka's StandardAuthorizer does.

In this order: super users may everything; an entry that denies wins over all that allow; where no entry at all is about
the resource, whoever it names, ``allow.everyone.if.no.acl.found`` decides; else it is denied. Reading, writing,
deleting and altering imply describing, altering configurations implies describing them, where they are allowed; denying
one denies that one. All is every operation.

An authorizer is a value: ``with_changes`` makes the next one, which shares what stayed. A decision looks up the entries
of the principal and those of everybody, by name, by each length that a prefix has, and under ``*``; what it costs does
not grow with the number of entries, only with that of the lengths.

An address is the same however an entry spells it: the index is by ``plain_address``, Java's spelling, which Kafka
compares. Who asks hands in the address in that spelling, so that no decision has to make it. What is told of an entry
is what was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from immutables import Map

from holdfast.model.addresses import plain_address
from holdfast.security.acls import EVERYBODY, WILDCARD, AclBinding, AclEntry, ResourcePattern
from holdfast.security.principal import Principal
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind

_Spelled: TypeAlias = tuple[str, int, int]
"""A host as entries have written it, with what it is denied and allowed by these: a bit for each operation."""
_Rights: TypeAlias = tuple[int, int, tuple[_Spelled, ...]]
"""What a host is denied and what it is allowed, and by which spellings of it, in their order."""
_Hosts: TypeAlias = Map[str, _Rights]
"""By address as it is compared."""
_NO_HOSTS: Final[_Hosts] = Map()
_NO_RIGHTS: Final[_Rights] = (0, 0, ())


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


_DENYING: Final = tuple(_bits(Operation.ALL) | 1 << operation for operation in Operation)
"""By operation: which entries deny it, and which allow it if nothing is implied."""
_IMPLYING: Final = {
    Operation.DESCRIBE: _bits(Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: _bits(Operation.ALTER_CONFIGS),
}
_ALLOWING: Final = tuple(_DENYING[operation] | _IMPLYING.get(operation, 0) for operation in Operation)

SUPER_USER: Final = "SuperUser"
DEFAULT_ALLOW: Final = "DefaultAllow"
DEFAULT_DENY: Final = "DefaultDeny"
NOT_READY: Final = "NotReady"
"""Of a broker that has not heard of any entries yet: it may not know who is denied. Kafka's is an exception."""


@dataclass(frozen=True, slots=True)
class AclDecision:
    """Whether, and why: ``acl`` is the entry that decided, if one did."""

    allowed: bool
    default: str = DEFAULT_DENY
    acl: AclBinding | None = None

    @property
    def rule(self) -> str:
        """As audit lines name it."""
        return self.default if self.acl is None else f"MatchingAcl(acl={self.acl})"


_SUPER: Final = AclDecision(True, SUPER_USER)
_DENIED: Final = AclDecision(False, DEFAULT_DENY)
_UNKNOWN: Final = AclDecision(False, NOT_READY)


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Hosts and what they may, by pattern: of one kind of resource and one principal; or how often a pattern occurs."""

    literal: Map[str, _Hosts] = field(default_factory=Map)
    prefixed: Map[str, _Hosts] = field(default_factory=Map)
    lengths: tuple[int, ...] = ()
    """Of the prefixes, longest first, each once."""

    def found(self, name: str) -> Iterator[tuple[str, PatternKind, _Hosts]]:
        """All patterns that cover ``name``."""
        literal, prefixed = self.literal, self.prefixed
        hosts = literal.get(name)
        if hosts is not None:
            yield name, PatternKind.LITERAL, hosts
        if prefixed:
            size = len(name)
            for length in self.lengths:
                if length <= size:
                    hosts = prefixed.get(name[:length])
                    if hosts is not None:
                        yield name[:length], PatternKind.PREFIXED, hosts
        hosts = literal.get(WILDCARD)
        if hosts is not None and name != WILDCARD:
            yield WILDCARD, PatternKind.LITERAL, hosts

    def hosts(self, resource: ResourcePattern) -> _Hosts:
        """Those of one pattern."""
        table = self.prefixed if resource.pattern is PatternKind.PREFIXED else self.literal
        return table.get(resource.name, _NO_HOSTS)

    def changed(self, resource: ResourcePattern, hosts: _Hosts) -> _Patterns:
        """With other hosts at one pattern; without the pattern, if there are none."""
        is_prefix = resource.pattern is PatternKind.PREFIXED
        table = self.prefixed if is_prefix else self.literal
        table = table.set(resource.name, hosts) if hosts else table.delete(resource.name)
        if not is_prefix:
            return replace(self, literal=table)
        lengths = self.lengths
        if len(table) != len(self.prefixed):
            length = len(resource.name)
            if hosts:
                lengths = tuple(sorted({*lengths, length}, reverse=True))
            elif not any(len(name) == length for name in table):
                lengths = tuple(each for each in lengths if each != length)
        return replace(self, prefixed=table, lengths=lengths)

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixed)


_NO_PATTERNS: Final = _Patterns()
_Key: TypeAlias = tuple[ResourceKind, str | None]
_COUNT: Final = None
"""Below it, and not below a principal, is how many entries each pattern has, whoever they name."""


@dataclass(frozen=True, slots=True)
class Authorizer:
    """``super_users`` are principals as text. Not ``ready``, only they may do anything."""

    super_users: frozenset[str] = frozenset()
    allow_if_no_acl: bool = False
    ready: bool = True
    books: Map[_Key, _Patterns] = field(default_factory=Map)

    @classmethod
    def closed(cls, super_users: Iterable[str], allow_if_no_acl: bool) -> Authorizer:
        """Of a broker that knows no entries yet."""
        return cls(frozenset(super_users), allow_if_no_acl, ready=False)

    def with_changes(self, added: Iterable[AclBinding], removed: Iterable[AclBinding] = ()) -> Authorizer:
        """After some entries came and went; what is there already, or not there, changes nothing."""
        books = self.books
        for binding in removed:
            books = _with(books, binding, present=False)
        for binding in added:
            books = _with(books, binding, present=True)
        return replace(self, books=books, ready=True)

    def with_all(self, bindings: Iterable[AclBinding]) -> Authorizer:
        """With these entries and no others."""
        return replace(self, books=Map()).with_changes(bindings)

    def may(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether ``principal``, at address ``host`` (as plain_address spells it), may do it to the resource."""
        return self.decide(principal, host, operation, kind, name).allowed

    def decide(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> AclDecision:
        """``may``, with the reason."""
        who = str(principal)
        if who in self.super_users:
            return _SUPER
        if not self.ready:
            return _UNKNOWN
        denying, allowing = _DENYING[operation], _ALLOWING[operation]
        allowed: tuple[str, str, PatternKind, _Rights] | None = None
        for text in (who, EVERYBODY):
            book = self.books.get((kind, text))
            if book is None:
                continue
            for pattern_name, pattern, hosts in book.found(name):
                for place in (host, WILDCARD):
                    rights = hosts.get(place)
                    if rights is None:
                        continue
                    if rights[0] & denying:
                        acl = _binding(kind, pattern_name, pattern, text, rights, denying, Permission.DENY)
                        return AclDecision(False, acl=acl)
                    if allowed is None and rights[1] & allowing:
                        allowed = text, pattern_name, pattern, rights
        if allowed is not None:
            text, pattern_name, pattern, rights = allowed
            acl = _binding(kind, pattern_name, pattern, text, rights, allowing, Permission.ALLOW)
            return AclDecision(True, acl=acl)
        if self.allow_if_no_acl and not self._has_entries(kind, name):
            return AclDecision(True, DEFAULT_ALLOW)
        return _DENIED

    def _has_entries(self, kind: ResourceKind, name: str) -> bool:
        return any(True for _ in self.books.get((kind, _COUNT), _NO_PATTERNS).found(name))

    def may_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there is any resource of the kind to which the principal may do it (authorizeByResourceType).

        A DENY on ``*``, on the same name or on a prefix of what is allowed takes that away. Nothing is implied here.
        Kafka asks for a resource of the name ``hardcode`` first; so do we, as its answer may be yes for that alone.
        """
        if self.may(principal, host, operation, kind, "hardcode"):
            return True
        if not self.ready:
            return False
        bits = _DENYING[operation]
        denied: set[ResourcePattern] = set()
        allowed: set[ResourcePattern] = set()
        for resource, rights in self._rights(str(principal), host, kind):
            if rights[0] & bits:
                denied.add(resource)
            if rights[1] & bits:
                allowed.add(resource)
        everything = ResourcePattern(kind, WILDCARD)
        if everything in denied:
            return False
        return everything in allowed or any(not _is_taken_away(each, denied) for each in allowed)

    def _rights(self, who: str, host: str, kind: ResourceKind) -> Iterator[tuple[ResourcePattern, _Rights]]:
        for text in dict.fromkeys((who, EVERYBODY)):
            book = self.books.get((kind, text), _NO_PATTERNS)
            for table, pattern in ((book.literal, PatternKind.LITERAL), (book.prefixed, PatternKind.PREFIXED)):
                for name, hosts in table.items():
                    for place in (host, WILDCARD):
                        rights = hosts.get(place)
                        if rights is not None:
                            yield ResourcePattern(kind, name, pattern), rights


def _is_taken_away(resource: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    if resource.pattern is PatternKind.LITERAL and resource in denied:
        return True
    prefixes = (resource.name[:length] for length in range(1, len(resource.name) + 1))
    return any(ResourcePattern(resource.kind, prefix, PatternKind.PREFIXED) in denied for prefix in prefixes)


def _binding(
    kind: ResourceKind, name: str, pattern: PatternKind, who: str, rights: _Rights, wanted: int, permission: Permission
) -> AclBinding:
    """One of the entries that have these rights, of those that are wanted: of the lowest operation."""
    host, bits = _spelled(rights, wanted, denies=permission is Permission.DENY)
    operation = Operation((bits & -bits).bit_length() - 1)
    return AclBinding(ResourcePattern(kind, name, pattern), AclEntry(who, host, operation, permission))


def _spelled(rights: _Rights, wanted: int, *, denies: bool) -> tuple[str, int]:
    """How a host is written in entries that have some of the wanted rights, and which these are."""
    for host, denied, allowed in rights[2]:
        bits = (denied if denies else allowed) & wanted
        if bits:
            return host, bits
    raise AssertionError(f"{rights}: expected some of the rights {wanted:#x}")


def _with(books: Map[_Key, _Patterns], binding: AclBinding, *, present: bool) -> Map[_Key, _Patterns]:
    resource, entry = binding.resource, binding.entry
    key: _Key = (resource.kind, entry.principal)
    book = books.get(key, _NO_PATTERNS)
    hosts, host = book.hosts(resource), plain_address(entry.host)
    rights = _rights_with(hosts.get(host, _NO_RIGHTS), entry, present=present)
    if rights is None:
        return books
    hosts = hosts.set(host, rights) if rights[2] else hosts.delete(host)
    books = _kept(books, key, book.changed(resource, hosts))
    key = (resource.kind, _COUNT)
    book = books.get(key, _NO_PATTERNS)
    count = book.hosts(resource).get("", _NO_RIGHTS)[1] + (1 if present else -1)
    return _kept(books, key, book.changed(resource, Map({"": (0, count, ())}) if count else _NO_HOSTS))


def _rights_with(rights: _Rights, entry: AclEntry, *, present: bool) -> _Rights | None:
    """With this entry of the host, or without it; None: that changes nothing."""
    by_spelling = {spelling: (denied, allowed) for spelling, denied, allowed in rights[2]}
    denied, allowed = by_spelling.pop(entry.host, (0, 0))
    bit, denies = 1 << entry.operation, entry.permission is Permission.DENY
    if bool((denied if denies else allowed) & bit) is present:
        return None
    denied, allowed = (denied ^ bit, allowed) if denies else (denied, allowed ^ bit)
    if denied or allowed:
        by_spelling[entry.host] = denied, allowed
    denied = allowed = 0
    for mine in by_spelling.values():
        denied |= mine[0]
        allowed |= mine[1]
    return denied, allowed, tuple(sorted((spelling, *mine) for spelling, mine in by_spelling.items()))


def _kept(books: Map[_Key, _Patterns], key: _Key, book: _Patterns) -> Map[_Key, _Patterns]:
    return books.set(key, book) if book else books.delete(key)
