"""A schema registry over HTTP, in the protocol of Confluent's (Karapace and Apicurio's compatible API speak it too).

Owns the requests, authentication, TLS, and a bounded memory of what ids mean. ``SchemaRegistry.by_id`` is the lookup
that records/typed/confluent.py asks. An id that is known stays what it is for ever, so it is asked once; one that is
not known is asked again after UNKNOWN_SECONDS.

    registry = SchemaRegistry("https://registry:8081", auth=BasicAuth(user="lake", password=...), ca=pem)
    registry.by_id(7)                   RegisteredSchema, with those that it refers to; None if there is none
    registry.latest("orders-value")     the newest version of a subject
"""

import base64
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from holdfast.records.typed.registered import RegisteredSchema

TIMEOUT_SECONDS: Final = 10.0
UNKNOWN_SECONDS: Final = 30.0
MAX_KNOWN: Final = 1000
"""Schemas that are remembered, the latest used ones."""
MAX_REFERENCES: Final = 200
MAX_ANSWER: Final = 16 << 20
_NOT_FOUND: Final = {40401, 40402, 40403}
"""The registry's own numbers for: no such subject, version, schema."""
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryError(Exception):
    """A registry cannot be reached, refuses us, or answers what it should not. It says nothing about values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicAuth:
    user: str
    password: str = field(repr=False)

    @property
    def header(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerAuth:
    token: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.token or not self.token.isascii() or not self.token.isprintable() or " " in self.token:
            raise ValueError("the registry's bearer token has characters that no header can have")

    @property
    def header(self) -> str:
        return f"Bearer {self.token}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a subject."""

    id: int
    version: int
    schema: RegisteredSchema


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A registry does not send its clients elsewhere, and elsewhere must not get the credentials."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


class SchemaRegistry:
    """Of one or several addresses of the same registry, asked in turn until one answers. Good for several threads."""

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        auth: BasicAuth | BearerAuth | None = None,
        ca: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        max_known: int = MAX_KNOWN,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``urls``: one, several, or several with commas between them; ``user:password@`` in one is basic
        authentication. ``ca``: PEM text of the authorities that are trusted instead of the system's. ``timeout`` in
        seconds, of connecting and of each silence. ValueError for what cannot be."""
        settings: dict[str, Any] = {"auth": auth, "ca": ca, "timeout": timeout, "max_known": max_known, "now": now}
        self._made = partial(SchemaRegistry, urls, **settings)
        parts = urls.split(",") if isinstance(urls, str) else list(urls)
        split = [_address(part.strip()) for part in parts if part.strip()]
        if not split:
            raise ValueError("no URL of a schema registry: expected http://host:port or https://host:port")
        if timeout <= 0 or max_known < 1:
            raise ValueError(f"timeout {timeout} and max_known {max_known}: expected more than 0")
        self._urls = [url for url, _ in split]
        self._auth = [auth or found for _, found in split]
        try:
            context = ssl.create_default_context(cadata=ca)
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(f"the registry's CA is no PEM text with certificates: {error}") from None
        self._opener = urllib.request.build_opener(_NoRedirect(), urllib.request.HTTPSHandler(context=context))
        self._timeout, self._now, self._max_known = timeout, now, max_known
        self._known: OrderedDict[int, tuple[RegisteredSchema | None, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Goes to other processes with its settings, and remembers nothing there."""
        return self._made, ()

    def by_id(self, number: int) -> RegisteredSchema | None:
        """The schema with this id, None if there is none. RegistryError, with the URL, if it cannot be asked."""
        with self._lock:
            found, until = self._known.get(number, (None, 0.0))
            if found is not None or self._now() < until:
                self._known.move_to_end(number)
                return found
        path = f"/schemas/ids/{number}"
        answer = self._get(path)
        schema = None if answer is None else self._schema(answer, path)
        with self._lock:
            self._known[number] = (schema, self._now() + UNKNOWN_SECONDS)
            self._known.move_to_end(number)
            while len(self._known) > self._max_known:
                self._known.popitem(last=False)
        return schema

    def latest(self, subject: str) -> Version | None:
        """The newest version of a subject, None if there is no such subject."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        answer = self._get(path)
        if answer is None:
            return None
        schema = self._schema(answer, f"/schemas/ids/{answer.get('id')}")
        return Version(id=int(answer["id"]), version=int(answer["version"]), schema=schema)

    def _schema(self, answer: dict[str, Any], path: str) -> RegisteredSchema:
        """From the answer to ``path``, with what it refers to."""
        kind = answer.get("schemaType", "AVRO")
        texts: OrderedDict[tuple[str, int], tuple[str, str]] = OrderedDict()
        self._follow(answer, kind, texts, [])
        return RegisteredSchema(kind=kind, text=self._text(answer, kind, path), references=tuple(texts.values()))

    def _follow(
        self,
        answer: dict[str, Any],
        kind: str,
        texts: OrderedDict[tuple[str, int], tuple[str, str]],
        inside: list[tuple[str, int]],
    ) -> None:
        """Puts the texts of what ``answer`` refers to into ``texts``, each after those that it needs itself."""
        for reference in answer.get("references") or ():
            subject, version = str(reference["subject"]), int(reference["version"])
            if (subject, version) in texts:
                continue
            if (subject, version) in inside or len(texts) + len(inside) >= MAX_REFERENCES:
                raise RegistryError(
                    f"schema registry {self._urls[0]}: version {version} of {subject} refers to itself, or there are "
                    f"more than {MAX_REFERENCES} references"
                )
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            found = self._get(path)
            if found is None:
                raise RegistryError(
                    f"schema registry {self._urls[0]} has no {path}, which one of its schemas refers to"
                )
            self._follow(found, kind, texts, [*inside, (subject, version)])
            texts[subject, version] = (str(reference["name"]), self._text(found, kind, path))

    def _text(self, answer: dict[str, Any], kind: str, path: str) -> str:
        """Protobuf is asked for once more, in the form that needs no parser of .proto files."""
        if kind == "PROTOBUF":
            answer = self._get(f"{path}?format=serialized") or {}
        if not isinstance(answer.get("schema"), str):
            raise RegistryError(f"schema registry {self._urls[0]}: the answer to {path} has no schema")
        return str(answer["schema"])

    def _get(self, path: str) -> dict[str, Any] | None:
        """None for what the registry says it has not. The addresses are asked in turn; the last one's error is told."""
        last: RegistryError | None = None
        for url, auth in zip(self._urls, self._auth, strict=True):
            try:
                return self._get_from(url, path, auth)
            except RegistryError as error:
                last = error
        assert last is not None
        raise last

    def _get_from(self, url: str, path: str, auth: BasicAuth | BearerAuth | None) -> dict[str, Any] | None:
        request = urllib.request.Request(url + path, headers={"Accept": _ACCEPT})
        if auth is not None:
            request.add_header("Authorization", auth.header)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                return _object(response.read(MAX_ANSWER + 1), url, path)
        except urllib.error.HTTPError as error:
            with error:
                _refuse(error, url, path)
            return None
        except (OSError, ValueError, EOFError) as error:
            raise RegistryError(f"schema registry {url} cannot be asked for {path}: {_reason(error)}") from None
        except http.client.HTTPException as error:
            raise RegistryError(f"schema registry {url} does not answer {path} in HTTP: {error!r}") from None


def _address(url: str) -> tuple[str, BasicAuth | None]:
    """The URL without credentials, and these."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        shown = url.rpartition("@")[2]
        raise ValueError(f"schema registry {shown!r}: expected http://host:port or https://host:port")
    auth = None
    if parts.username is not None:
        auth = BasicAuth(user=unquote(parts.username), password=unquote(parts.password or ""))
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), auth


def _object(body: bytes, url: str, path: str) -> dict[str, Any]:
    if len(body) > MAX_ANSWER:
        raise RegistryError(f"schema registry {url}: the answer to {path} has more than {MAX_ANSWER} bytes")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RegistryError(f"schema registry {url}: the answer to {path} is not a JSON object: {body[:60]!r}")
    return found


def _refuse(error: urllib.error.HTTPError, url: str, path: str) -> None:
    """RegistryError, unless the registry itself says that it has no such thing."""
    body = error.read(4096)
    try:
        told = json.loads(body)
        number, message = int(told.get("error_code", 0)), str(told.get("message", ""))
    except (ValueError, AttributeError, TypeError):
        number, message = 0, body[:80].decode(errors="replace")
    if error.code == 404 and number in _NOT_FOUND:
        return
    hint = " (authentication)" if error.code in (401, 403) else ""
    raise RegistryError(f"schema registry {url} answers {path} with {error.code}{hint}: {message or error.reason}")


def _reason(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or error
    return str(reason) or type(reason).__name__
