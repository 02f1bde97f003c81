"""Pages of acts: the form with what it would do, the doing, what became of it; and a cookie for who has the token."""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from holdfast.console.acts import Act, ActOutcome, ActPlan, ActRefused, said
from holdfast.console.host import ConsoleHost
from holdfast.console.poller import now_ms
from holdfast.console.snapshot import Snapshot
from holdfast.model.errors import HoldfastError

log = logging.getLogger(__name__)

LARGEST_FORM = 256 * 1024
ACT_TIMEOUT_S = 120.0
"""A directory that is used again is recovered before the answer."""


class ActPages:
    """Handlers."""

    def __init__(self, host: ConsoleHost) -> None:
        self._host = host
        self._doing: set[asyncio.Task[ActOutcome]] = set()

    # -- the token ---------------------------------------------------------------------------------------------

    async def unlock(self, request: Request) -> Response:
        """GET: the form. POST: the cookie, for who has the token."""
        if request.method != "POST":
            return await self._host.page(request, "unlock.html", problem=None, folder=self._host.settings.data_dir)
        form = await form_of(request)
        if not self._host.rules.is_token(form.get("token", "")):
            await asyncio.sleep(0.2)  # whoever guesses is in no hurry
            return await self._host.page(
                request, "unlock.html", problem="that is not the token", status=403, folder=self._host.settings.data_dir
            )
        answer = RedirectResponse("/acts", 303)
        answer.set_cookie(
            self._host.rules.cookie_name, self._host.rules.cookie_value, httponly=True, samesite="strict", path="/"
        )
        return answer

    # -- acts --------------------------------------------------------------------------------------------------

    async def index(self, request: Request) -> Response:
        """All acts that this cluster can do, and the last ones that were done."""
        kafka = (await self._host.snapshot()).is_all_kafka
        offered = [act for act in self._host.acts.values() if not (kafka and act.ours)]
        return await self._host.page(request, "acts.html", acts=offered, outcomes=self._host.log.outcomes())

    async def outcome(self, request: Request) -> Response:
        """What became of one."""
        await self._host.snapshot()
        found = self._host.log.numbered(int(request.path_params["number"]))
        if found is None:
            return await self._host.trouble(
                request, "this console knows of no such act: it was started since", status=404
            )
        return await self._host.page(request, "outcome.html", outcome=found)

    async def act(self, request: Request) -> Response:
        """GET: the form, and what would happen where it is filled in. POST: it is done."""
        await self._host.snapshot()
        act = self._host.acts.get(request.path_params["name"])
        if act is None:
            return await self._host.trouble(request, f"there is no act {request.path_params['name']!r}", status=404)
        if request.method == "POST":
            return await self._do(request, act, await form_of(request))
        form = with_first_choices(act, self._host.poller.snapshot, request.query_params)
        return await self._shown(request, act, form, await self._planned(act, form) if form.get("plan") else None)

    async def _planned(self, act: Act, form: Mapping[str, str]) -> ActPlan:
        """What cannot be is a plan that says so."""
        try:
            async with self._host.client() as client:
                return await act.plan(client, self._host.poller.snapshot, form)
        except ActRefused as e:
            return ActPlan(refused=str(e))
        except HoldfastError as e:
            return ActPlan(refused=said(e))

    async def _shown(
        self, request: Request, act: Act, form: Mapping[str, str], plan: ActPlan | None, *, status: int = 200,
        problem: str | None = None,
    ) -> Response:  # fmt: skip
        fields = act.fields(self._host.poller.snapshot, form)
        return await self._host.page(
            request, "act.html", status=status, act=act, fields=fields, plan=plan, problem=problem,
            once=secrets.token_urlsafe(12), form={each.name: each.value for each in fields},
        )  # fmt: skip

    async def _do(self, request: Request, act: Act, form: Mapping[str, str]) -> Response:
        """The plan is made again first: what has to be typed follows from how things are now."""
        once = form.get("once", "")
        if not once:
            return await self._shown(request, act, form, None, status=422, problem="this form was not made here")
        try:
            done = self._host.log.begin(once)
        except ActRefused as e:
            return await self._host.trouble(request, str(e), status=409)
        if done is not None:
            return _see(done)
        try:
            plan = await self._planned(act, form)
        except asyncio.CancelledError:  # who sent it has logged out: nothing is done
            self._host.log.give_up(once)
            raise
        problem = plan.refused
        if problem is None and plan.confirm is not None and form.get("confirm", "") != plan.confirm:
            problem = f"what was typed is not {plan.confirm}"
        if problem is not None:
            self._host.log.give_up(once)
            return await self._shown(request, act, form, plan, status=422, problem=problem)
        doing = asyncio.get_running_loop().create_task(self._done(act, form, plan, once, request))
        self._doing.add(doing)
        doing.add_done_callback(self._doing.discard)
        return _see(await asyncio.shield(doing))

    async def _done(self, act: Act, form: Mapping[str, str], plan: ActPlan, once: str, request: Request) -> ActOutcome:
        """Also when the browser goes away meanwhile, or its user logs out: what has begun is in the log."""
        lines: list[str] = []
        error = None
        try:
            async with self._host.client(timeout_s=ACT_TIMEOUT_S) as client:
                lines = await act.do(client, self._host.poller.snapshot, form)
        except ActRefused as e:
            error = str(e)
        except HoldfastError as e:
            error = said(e)
        place = "" if request.client is None else request.client.host
        user = self._host.settings.user
        who = f"{user} at {place}" if user else place
        self._host.poller.wake()
        return self._host.log.end(once, act, form, now_ms(), plan.commands, lines, error, who)


def with_first_choices(act: Act, snapshot: Snapshot, form: Mapping[str, str]) -> dict[str, str]:
    """What a browser shows of a choice that nobody has made yet. What was chosen stays, also if it is none. Pure."""
    filled = dict(form)
    for each in act.fields(snapshot, filled):
        if each.kind == "choice" and each.choices and not filled.get(each.name):
            filled[each.name] = each.choices[0][0]
    return filled


def _see(outcome: ActOutcome) -> Response:
    """A page that may be loaded again: nothing is done twice."""
    return RedirectResponse(f"/acts/{outcome.number}", 303)


async def form_of(request: Request) -> dict[str, str]:
    """Fields of a form as browsers send it; one that is too large, or does not come whole, has none."""
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_FORM:
                return {}
    except ClientDisconnect:
        return {}
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=50))
