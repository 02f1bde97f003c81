"""Our requests about ids: far from Kafka's keys, told to nobody, and read back as they were written."""

from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map

from holdfast.protocol import broker_ids as wire
from holdfast.protocol.apis import BETWEEN_BROKERS, OPERATORS, ApiKey, advertised
from holdfast.protocol.framing import decode_request, decode_response, encode_body

CLAIM, MANAGE = int(ApiKey.CLAIM_BROKER_ID), int(ApiKey.MANAGE_BROKER_IDS)


def test_they_are_not_kafkas_and_not_told() -> None:
    assert (wire.CLAIM_BROKER_ID, wire.MANAGE_BROKER_IDS) == (CLAIM, MANAGE)
    assert min(CLAIM, MANAGE) > max(api_key_map) * 10
    assert not {CLAIM, MANAGE} & {key for key, _, _ in advertised()}
    assert CLAIM in BETWEEN_BROKERS
    assert MANAGE in OPERATORS


def test_a_claim_there_and_back() -> None:
    for request in (
        wire.ClaimBrokerIdRequest(cluster_id="c", host="h", claimant=UUID(int=5)),
        wire.ClaimBrokerIdRequest(
            cluster_id="c",
            host="ä",
            claimant=UUID(int=5),
            address="a:1",
            adopts=True,
            may_be_new=False,
            insists=True,
            reserved_max=7,
        ),  # type: ignore[arg-type]
    ):
        assert decode_request(CLAIM, 0, encode_body(request)) == request
    answer = wire.ClaimBrokerIdResponse(
        error_code=ErrorCode.none, result=wire.ClaimResult.SEVERAL_MISSING, missing=(2, 3)
    )  # type: ignore[arg-type]
    assert decode_response(CLAIM, 0, encode_body(answer)) == answer


def test_the_mapping_there_and_back() -> None:
    request = wire.ManageBrokerIdsRequest(action=wire.HostAction.SET, host="h", broker_id=3)  # type: ignore[arg-type]
    assert decode_request(MANAGE, 0, encode_body(request)) == request
    host = wire.ManagedHost(host="h", broker_id=3, is_awaited=True, is_registered=True, is_alive=False)  # type: ignore[arg-type]
    answer = wire.ManageBrokerIdsResponse(
        error_code=ErrorCode.invalid_request, error_message="no", sequence=4, hosts=(host,)
    )  # type: ignore[arg-type]
    assert decode_response(MANAGE, 0, encode_body(answer)) == answer
