"""A client's request that a broker sends on is judged as the client's; who sends envelopes must be a broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.access import Access
from holdfast.broker.entity import build
from holdfast.broker.handlers.base import RequestContext
from holdfast.broker.handlers.forwarding import forward
from holdfast.broker.quota_view import QuotaView
from holdfast.broker.session import Session
from holdfast.model.errors import ClusterAuthorizationFailedError, UnknownServerError
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.protocol.envelope import answer_in, seal, unseal
from holdfast.protocol.framing import (
    decode_response,
    encode_body,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
)
from holdfast.security.principal import Principal
from holdfast.security.resources import Operation
from tests.unit.broker.rights import CLUSTER, Granted, granted
from tests.unit.broker.test_dispatch import Client, on_a_loop, served
from tests.unit.broker.test_membership import member

ALICE = Principal.user("alice")
BROKER = {(Operation.CLUSTER_ACTION, CLUSTER, "kafka-cluster")}
WITHIN: dict[str, Any] = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}


def frame_of(key: int, version: int, values: dict[str, Any]) -> bytes:
    return encode_request(key, version, 77, "c", build(request_type(key, version), values))


async def sent(client: Client, principal: Principal, frame: bytes) -> Any:
    """The answer to an envelope."""
    envelope = seal((principal.kind, principal.name), "10.9.8.7", frame)
    await client.send(encode_request(ApiKey.ENVELOPE, 0, 5, "broker-2-forwards", envelope))
    received = await client.receive()
    _, start = parse_response_header(ApiKey.ENVELOPE, 0, received)
    return decode_response(ApiKey.ENVELOPE, 0, received[start:])


def inner_code(key: int, version: int, answer: Any) -> int:
    correlation_id, start = parse_response_header(key, version, answer.response_data)
    assert correlation_id == 77
    return int(decode_response(key, version, answer.response_data[start:]).error_code)


@on_a_loop
async def test_what_is_inside_is_judged_by_who_asked() -> None:
    """Not by the broker that sends it on, which may less here, or more."""
    describe = {(Operation.DESCRIBE, CLUSTER, "kafka-cluster")}
    for to, code in (({ALICE: describe}, None), ({}, 31)):
        access = Granted(to_all=BROKER, to=to)
        async with served(access=Access(access), controller=None) as client:
            answer = await sent(client, ALICE, frame_of(ApiKey.DESCRIBE_QUORUM, 2, WITHIN))
            inside = inner_code(ApiKey.DESCRIBE_QUORUM, 2, answer)
            # -1: the broker of this test has no membership by which it could be sent on
            assert (int(answer.error_code), inside) == (0, -1 if code is None else code)
            assert "10.9.8.7" in access.hosts


@on_a_loop
async def test_who_is_no_broker_cannot_say_who_asks() -> None:
    alices_right = {(Operation.DESCRIBE, CLUSTER, "kafka-cluster")}
    async with served(access=Access(Granted(to={ALICE: alices_right}))) as client:
        answer = await sent(client, ALICE, frame_of(ApiKey.DESCRIBE_QUORUM, 2, WITHIN))
        assert (int(answer.error_code), answer.response_data) == (31, None)


@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.METADATA, 12), (ApiKey.PRODUCE, 9), (ApiKey.LEADER_AND_ISR, 7), (ApiKey.ENVELOPE, 0)]
)
@on_a_loop
async def test_what_brokers_do_not_send_on_is_refused(key: int, version: int) -> None:
    async with served(access=Access(granted((Operation.CLUSTER_ACTION, CLUSTER)))) as client:
        frame = frame_of(key, version, {})
        answer = await sent(client, ALICE, frame)
        assert (int(answer.error_code), answer.response_data) == (42, None)


def test_a_request_goes_in_an_envelope_where_rights_count_and_else_as_it_came() -> None:
    """So a cluster without them may have brokers that know of no envelopes."""
    key, version = int(ApiKey.DESCRIBE_QUORUM), 2
    body = encode_body(build(request_type(key, version), WITHIN))
    inner = encode_response(77, build_answer(key, version))

    async def asked(access: Access, principal: Principal) -> tuple[bytes | None, Any]:
        async with member() as (two, controller):
            controller.special[key] = {}
            controller.special[ApiKey.ENVELOPE] = {"response_data": inner[4:]}
            broker: Any = SimpleNamespace(access=access, membership=two.membership, controller=None)
            broker.quota_view = QuotaView()
            connection: Any = SimpleNamespace(session=Session(principal=principal), peer=("10.9.8.7", 1))
            ctx = RequestContext(
                broker=broker, connection=connection, api_key=key, version=version, correlation_id=77, client_id="c",
                body=body,
            )  # fmt: skip
            answer = await forward(ctx, 5.0)
            # heartbeats come beside it
            (came,) = controller.of(key) + controller.of(ApiKey.ENVELOPE)
            return answer, came

    plain, request = asyncio.run(asked(Access(), Session().principal))
    assert int(request.__api_key__) == key and plain is not None
    for access, principal in ((Access(), ALICE), (Access(granted()), ALICE), (Access(granted()), Session().principal)):
        answer, envelope = asyncio.run(asked(access, principal))
        assert answer == inner
        sealed = unseal(envelope)
        assert (sealed.principal, sealed.host) == (("User", principal.name), "10.9.8.7")
        header = parse_request_header(sealed.request)
        assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (key, version, 77, "c")
        assert bytes(sealed.request[header.body_offset :]) == body


def build_answer(key: int, version: int) -> Any:
    from holdfast.protocol.apis import response_type

    return build(response_type(key, version), {"error_code": None, "topics": []})


def test_a_broker_whose_envelopes_are_refused_says_so() -> None:
    async def check() -> None:
        async with member() as (two, controller):
            refused = answer_in(None, ClusterAuthorizationFailedError("no"))
            controller.special[ApiKey.ENVELOPE] = {"error_code": refused.error_code}
            broker: Any = SimpleNamespace(
                access=Access(granted()),
                membership=two.membership,
                quota_view=QuotaView(),
                controller=None,
                broker_id=2,
            )
            broker.quota_view = QuotaView()
            connection: Any = SimpleNamespace(session=Session(), peer=("10.9.8.7", 1))
            ctx = RequestContext(
                broker=broker, connection=connection, api_key=55, version=2, correlation_id=77, client_id="c", body=b"",
            )  # fmt: skip
            with pytest.raises(UnknownServerError, match="does not take what this broker sends on"):
                await forward(ctx, 5.0)

    asyncio.run(check())
