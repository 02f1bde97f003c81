"""What is answered to who makes access control lists where a broker of the software before could not read them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from holdfast.broker.access import Access
from holdfast.broker.acl_view import AclView
from holdfast.broker.handlers.acls import handle_create_acls
from holdfast.broker.handlers.base import RequestContext
from holdfast.model.config import BrokerConfig
from holdfast.protocol.apis import ApiKey
from holdfast.security.authorizer import Authorizer


def test_with_an_older_protocol_no_entry_is_recorded() -> None:
    async def run() -> Any:
        config = BrokerConfig.parse({"node.id": "1", "inter.broker.protocol.version": "0.1-IV0"})
        broker: Any = SimpleNamespace(
            access=Access(acls=AclView(Authorizer())), config=config, controller=SimpleNamespace(ended=asyncio.Event())
        )
        connection: Any = SimpleNamespace(peer=("h", 1))
        ctx = RequestContext(
            broker=broker, connection=connection, api_key=ApiKey.CREATE_ACLS, version=3, correlation_id=1,
            client_id="c", body=b"",
        )  # fmt: skip
        return await handle_create_acls(ctx, SimpleNamespace(creations=(object(), object())))

    results = asyncio.run(run()).results
    assert [int(result.error_code) for result in results] == [35, 35]
    assert "inter.broker.protocol.version=0.1-IV0 keeps no such thing" in results[0].error_message
