"""What can go wrong between a client and a broker before there is an answer with an error code.

Never holds answers of a broker: those are the error families of the model.
"""

from holdfast.model.errors import HoldfastError, NetworkError, RequestTimedOutError


class BrokerUnreachable(NetworkError):
    """No connection could be made. ``refused``: the machine answered and nothing listens on the port."""

    def __init__(self, address: str, *, refused: bool, reason: str) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address = address
        self.refused = refused


class ConnectionLost(NetworkError):
    """The connection ended with requests unanswered, or is not open."""


class RequestTimedOut(RequestTimedOutError):
    """No answer in the time that the caller gave. The connection stays usable; a late answer is dropped."""


class TooManyInFlight(NetworkError):
    """The connection already has as many unanswered requests as it may have."""


class MalformedResponse(HoldfastError):
    """The broker's answer cannot be read: not a Kafka broker, or a bug on one side."""


class NoBrokersAvailable(NetworkError):
    """None of the bootstrap servers or known brokers could be reached."""


class AuthenticationError(HoldfastError):
    """One side does not believe who the other is: trying again does not help. The text names broker and mechanism, and
    no secret."""
