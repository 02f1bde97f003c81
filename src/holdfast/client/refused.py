"""What a client makes of an error code in an answer: the error, and words that say why.

Every code of an answer becomes an error here and nowhere else, so that none comes without its reason. Pure.
"""

from typing import Final

from holdfast.model.errors import ClusterAuthorizationFailedError, HoldfastError
from holdfast.protocol.error_codes import error_of
from holdfast.protocol.error_words import words_of

_NO_THING: Final = "Authorization failed."
"""What brokers say of topics that may not be made: less than the code."""


def refusal(code: int, message: str | None, context: str = "") -> HoldfastError | None:
    """The error of a code; None for 0. ``message``: the broker's. Where it has none, or names no thing, the error says
    what was asked, which is ``context``, and then the broker's words or the name of the code."""
    if not code:
        return None
    usual = words_of(code)
    words = message or usual
    if not context or words not in (usual, _NO_THING):
        return error_of(code, words)
    error = error_of(code, f"{context}: {words}")
    if error is not None:
        error.context = context
    return error


def raise_for(code: int, message: str | None, context: str) -> None:
    """Raises the error of a non-zero code."""
    error = refusal(code, message, context)
    if error is not None:
        raise error


def raise_for_producer_id(code: int) -> None:
    """``raise_for`` of InitProducerId without a transactional id, whose answer does not say which right is missing."""
    error = refusal(code, None, "no producer id")
    if isinstance(error, ClusterAuthorizationFailedError):
        raise type(error)(f"{error} Expected IdempotentWrite on the cluster, or Write on any topic.")
    if error is not None:
        raise error
