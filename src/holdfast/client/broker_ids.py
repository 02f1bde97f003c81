"""What an operator asks of a cluster about broker ids: which host has which, and changes of that (KIP-426).

Owns the request ManageBrokerIds (ours) and what its answer means. Functions over an AdminClient; none of them tries a
change again by itself.
"""

from dataclasses import dataclass
from typing import Any

from holdfast.client.admin import AdminClient
from holdfast.client.errors import BrokerUnreachable, ConnectionLost
from holdfast.client.refused import raise_for
from holdfast.model.errors import BrokerUnavailableError, UnsupportedVersionError
from holdfast.model.types import BrokerId
from holdfast.protocol.broker_ids import HostAction, ManageBrokerIdsRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """``is_awaited``: a broker has taken the id and was not alive since. The others are of the broker of that id."""

    host: str
    broker_id: BrokerId
    is_awaited: bool
    is_registered: bool
    is_alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsView:
    """All hosts by name. ``sequence``: the number of the last new id, 0 before the first."""

    hosts: tuple[HostView, ...]
    sequence: int


async def list_hosts(client: AdminClient) -> HostsView:
    """Which host has which id. UnsupportedVersionError when no broker can be asked that."""
    return await _ask(client, ManageBrokerIdsRequest())


async def set_host(client: AdminClient, host: str, broker_id: BrokerId) -> HostsView:
    """Have a host have this id from now on. InvalidRequestError: it is no host, or no id."""
    request = ManageBrokerIdsRequest(action=HostAction.SET, host=host, broker_id=broker_id)  # type: ignore[arg-type]
    return await _ask(client, request)


async def forget_host(client: AdminClient, host: str) -> HostsView:
    """ResourceNotFoundError: the host has no id."""
    return await _ask(client, ManageBrokerIdsRequest(action=HostAction.FORGET, host=host))  # type: ignore[arg-type]


async def _ask(client: AdminClient, request: ManageBrokerIdsRequest) -> HostsView:
    """Of any broker that is there: it asks the controller."""
    brokers = sorted((await client.metadata(())).brokers)
    for broker_id in brokers:
        try:
            answer = await client.ask_unlisted(broker_id, request, timeout_s=client.timeout_s)
        except BrokerUnreachable:
            continue  # the next one
        except ConnectionLost as e:
            raise UnsupportedVersionError(
                f"broker {broker_id} closed the connection ({e}): it died, or is no Holdfast broker that can be asked "
                f"this, or not by this listener (operator.listener.names)"
            ) from e
        raise_for(answer.error_code.value, answer.error_message, f"broker ids, asked of broker {broker_id}")
        return _view(answer)
    raise BrokerUnavailableError(f"none of the brokers {', '.join(map(str, brokers))} takes a connection")


def _view(answer: Any) -> HostsView:
    return HostsView(
        hosts=tuple(
            HostView(
                host=each.host,
                broker_id=int(each.broker_id),
                is_awaited=each.is_awaited,
                is_registered=each.is_registered,
                is_alive=each.is_alive,
            )
            for each in answer.hosts
        ),
        sequence=int(answer.sequence),
    )
