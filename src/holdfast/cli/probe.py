"""One blocking question to one broker: which brokers does it see?

For `up`, whose parent process has no event loop and must not grow one. Everything else uses client/.
"""

import socket
import struct

from kio.schema.metadata.v12.request import MetadataRequest

from holdfast.model.errors import HoldfastError
from holdfast.protocol.framing import decode_response, encode_request, parse_response_header

TIMEOUT_S = 2.0


def brokers_seen_by(host: str, port: int) -> frozenset[int]:
    """Ids of the brokers in Metadata; empty while the broker does not answer or knows no controller."""
    request = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as sock:
            sock.sendall(encode_request(3, 12, 1, "holdfast-up", request))
            (size,) = struct.unpack(">i", _exactly(sock, 4))
            frame = _exactly(sock, size)
        answer = decode_response(3, 12, memoryview(frame)[parse_response_header(3, 12, frame)[1] :])
    except (OSError, HoldfastError, struct.error, ValueError):
        return frozenset()
    if answer.controller_id < 0:
        return frozenset()
    return frozenset(int(broker.node_id) for broker in answer.brokers)


def _exactly(sock: socket.socket, size: int) -> bytes:
    if not 0 <= size <= 1 << 24:
        raise ValueError(f"a frame of {size} bytes")
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionResetError("closed by the broker")
        data += part
    return bytes(data)
