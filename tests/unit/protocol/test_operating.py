"""Our own request: far from Kafka's keys, told to nobody, and read back as it was written."""

from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map

from holdfast.protocol import operating as op
from holdfast.protocol.apis import INTERNAL, ApiKey, advertised, request_type, response_type
from holdfast.protocol.framing import decode_request, decode_response, encode_body

KEY = int(ApiKey.MANAGE_LOG_DIRS)


def test_it_is_not_kafkas_and_not_told() -> None:
    assert op.MANAGE_LOG_DIRS == KEY > max(api_key_map) * 10
    assert KEY not in {key for key, _, _ in advertised()}
    assert INTERNAL[ApiKey.MANAGE_LOG_DIRS] == (0, 0)
    assert (request_type(KEY, 0), response_type(KEY, 0)) == (op.ManageLogDirsRequest, op.ManageLogDirsResponse)


def test_there_and_back() -> None:
    for request in (
        op.ManageLogDirsRequest(),
        op.ManageLogDirsRequest(action=op.DirAction.REMOVE, path="/d ä", force=True),  # type: ignore[arg-type]
    ):
        assert decode_request(KEY, 0, encode_body(request)) == request
    replica = op.ManagedReplica(topic_name="t", partition_index=3, size=1 << 40, lag=-1, is_future=True)  # type: ignore[arg-type]
    log_dir = op.ManagedLogDir(
        path="/d1", directory_id=UUID(int=5), state="offline", reason="EIO", since_ms=7, total_bytes=-1,
        usable_bytes=-1, probe_us=1500, cordoned=True, replicas=(replica,),
    )  # type: ignore[arg-type]  # fmt: skip
    move = op.ManagedMove(topic_name="t", partition_index=3, source="/d2", target="/d1", lag=8, bytes_per_s=9)  # type: ignore[arg-type]
    answer = op.ManageLogDirsResponse(
        error_code=ErrorCode.log_dir_not_found, error_message="no", log_dirs=(log_dir,), moves=(move,)
    )
    assert decode_response(KEY, 0, encode_body(answer)) == answer
