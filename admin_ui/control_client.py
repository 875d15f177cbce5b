"""The one way from the pages to the system: the control API over HTTP."""

from __future__ import annotations

from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from admin_ui.control_errors import ControlUnreachableError, ControlUnreadableError, read_refusal
from admin_ui.control_records import (
    EngineRow,
    Journals,
    Listing,
    Member,
    NewSession,
    Project,
    Receipt,
    Record,
    RequestRow,
    Route,
    Usage,
)
from admin_ui.cost_records import (
    CapacityProfileRow,
    ChargeSpreads,
    Crossover,
    PriceBook,
    Serving,
)
from admin_ui.fleet_records import Deployment, LedRoute, Reconciliation, Replica
from admin_ui.limit_records import Budget, Credit, Named, RateLimit
from admin_ui.shadow_records import ShadowedRoute

RecordT = TypeVar("RecordT", bound=Record)

# A receipt may be held up to 3 s by the control API, and a probe of dead engines takes seconds too.
_ANSWER_TIMEOUT_SECONDS = 12.0
_REPORT_TIMEOUT_SECONDS = (
    60.0  # hundreds of replicas over months of hours are seconds of arithmetic
)
_CONNECT_TIMEOUT_SECONDS = 2.0
_API_PREFIX = "/api/v1"


class ControlClient:
    """Typed calls of the control API; one pooled HTTP client for all pages.

    Every call raises :class:`ControlError` or one of its kinds. ``token`` is the member's session.
    """

    def __init__(
        self, control_base_url: str, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._http = httpx.AsyncClient(
            base_url=control_base_url.rstrip("/") + _API_PREFIX,
            timeout=httpx.Timeout(_ANSWER_TIMEOUT_SECONDS, connect=_CONNECT_TIMEOUT_SECONDS),
            transport=transport,
            # Proxies from the environment must not see session tokens of a loopback call.
            trust_env=False,
        )

    async def __aenter__(self) -> ControlClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the pooled connections."""
        await self._http.aclose()

    async def sign_in(self, email: str, password: str) -> NewSession:
        """Begin a session; :class:`SessionRefusedError` when the email or the password is wrong."""
        answer = await self._send("POST", "/sessions", json={"email": email, "password": password})
        return _decode(answer, NewSession)

    async def sign_out(self, token: str) -> None:
        """End the session for good."""
        await self._send("DELETE", "/sessions/current", token=token)

    async def get_member(self, token: str) -> Member:
        """Return who is signed in."""
        return _decode(await self._send("GET", "/me", token=token), Member)

    async def list_projects(self, token: str) -> list[Project]:
        """Return the projects, as the control API orders them."""
        answer = await self._send("GET", "/projects", token=token)
        return _decode(answer, Listing[Project]).data

    async def list_routes(self, token: str) -> list[Route]:
        """Return the public model names."""
        return _decode(await self._send("GET", "/routes", token=token), Listing[Route]).data

    async def list_led_routes(self, token: str) -> list[LedRoute]:
        """Return the public model names with where they lead."""
        return _decode(await self._send("GET", "/routes", token=token), Listing[LedRoute]).data

    async def list_deployments(self, token: str) -> list[Deployment]:
        """Return the deployments with their replicas, oldest first."""
        answer = await self._send("GET", "/deployments", token=token)
        return _decode(answer, Listing[Deployment]).data

    async def change_replica(self, token: str, replica_id: str, changes: dict[str, Any]) -> Replica:
        """Change a replica's weight, or whether it drains; return it as it is then."""
        path = f"/replicas/{quote(replica_id, safe='')}"
        return _decode(await self._send("PATCH", path, token=token, json=changes), Replica)

    async def list_limits(self, token: str) -> list[RateLimit]:
        """Return the rate limits, oldest first."""
        answer = await self._send("GET", "/limits", token=token)
        return _decode(answer, Listing[RateLimit]).data

    async def list_budgets(self, token: str) -> list[Budget]:
        """Return the budgets with what was charged in their current windows."""
        return _decode(await self._send("GET", "/budgets", token=token), Listing[Budget]).data

    async def list_named(self, token: str, kind: str) -> list[Named]:
        """Return all ``organizations``, ``projects`` or ``keys`` with their names."""
        return _decode(await self._send("GET", f"/{kind}", token=token), Listing[Named]).data

    async def get_credit(self, token: str, organization_id: str) -> Credit:
        """Return how an organization pays, with its grants in the order in which they burn."""
        path = f"/organizations/{quote(organization_id, safe='')}/credit"
        return _decode(await self._send("GET", path, token=token), Credit)

    async def get_usage(
        self,
        token: str,
        *,
        group_by: str,
        from_at: datetime,
        to_at: datetime,
        project_id: str | None,
    ) -> Usage:
        """Return usage in ``[from_at, to_at)`` by ``group_by`` (day, project, key or route)."""
        parameters = {
            "group_by": group_by,
            "from": from_at.isoformat(),
            "to": to_at.isoformat(),
        }
        if project_id is not None:
            parameters["project_id"] = project_id
        return _decode(await self._send("GET", "/usage", token=token, params=parameters), Usage)

    async def list_requests(
        self, token: str, *, limit: int, project_id: str | None
    ) -> list[RequestRow]:
        """Return the latest requests, newest first."""
        parameters = {"limit": str(limit)}
        if project_id is not None:
            parameters["project_id"] = project_id
        answer = await self._send("GET", "/requests", token=token, params=parameters)
        return _decode(answer, Listing[RequestRow]).data

    async def get_receipt(self, token: str, request_id: str) -> Receipt:
        """Return the receipt; :class:`ControlRefusedError` with status 404 when there is none."""
        answer = await self._send("GET", f"/receipts/{quote(request_id, safe='')}", token=token)
        return _decode(answer, Receipt)

    async def get_crossover(self, token: str, question: dict[str, Any]) -> Crossover:
        """Return the report on serverless and dedicated GPUs over the ledger's hours."""
        answer = await self._send(
            "POST",
            "/crossover",
            token=token,
            json=question,
            longest_seconds=_REPORT_TIMEOUT_SECONDS,
        )
        return _decode(answer, Crossover)

    async def get_serving(self, token: str, query: dict[str, str]) -> Serving:
        """Return how requests were served."""
        return _decode(await self._send("GET", "/serving", token=token, params=query), Serving)

    async def get_charge_spread(self, token: str, query: dict[str, str]) -> ChargeSpreads:
        """Return how charges spread over requests."""
        answer = await self._send("GET", "/charges/spread", token=token, params=query)
        return _decode(answer, ChargeSpreads)

    async def list_price_books(self, token: str) -> list[PriceBook]:
        """Return the price books by name."""
        answer = await self._send("GET", "/price-books", token=token)
        return _decode(answer, Listing[PriceBook]).data

    async def list_capacity_profiles(self, token: str) -> list[CapacityProfileRow]:
        """Return the measured capacities that are stored, by name."""
        answer = await self._send("GET", "/capacity-profiles", token=token)
        return _decode(answer, Listing[CapacityProfileRow]).data

    async def list_shadowed(self, token: str) -> list[ShadowedRoute]:
        """Return how each shadowed route stands, with its curves, by name."""
        answer = await self._send(
            "GET",
            "/shadow",
            token=token,
            params={"curves": "true"},
            longest_seconds=_REPORT_TIMEOUT_SECONDS,
        )
        return _decode(answer, Listing[ShadowedRoute]).data

    async def change_thresholds(self, token: str, change: str, body: dict[str, Any]) -> None:
        """Take a proposal (``apply``), or go back to earlier thresholds (``rollback``)."""
        await self._send(
            "POST",
            f"/shadow/{change}",
            token=token,
            json=body,
            longest_seconds=_REPORT_TIMEOUT_SECONDS,
        )

    async def list_engines(self, token: str) -> list[EngineRow]:
        """Return every replica with the outcome of a probe made now."""
        return _decode(await self._send("GET", "/engines", token=token), Listing[EngineRow]).data

    async def get_reconciliation(self, token: str) -> Reconciliation:
        """Return our token counts beside the engines' own, of the last day."""
        return _decode(await self._send("GET", "/reconciliation", token=token), Reconciliation)

    async def get_journals(self, token: str) -> Journals:
        """Return the metering counters over all journals."""
        return _decode(await self._send("GET", "/journals", token=token), Journals)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        params: dict[str, str] | None = None,
        json: dict[str, Any] | None = None,
        longest_seconds: float = _ANSWER_TIMEOUT_SECONDS,
    ) -> httpx.Response:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        try:
            answer = await self._http.request(
                method,
                path,
                params=params,
                json=json,
                headers=headers,
                timeout=httpx.Timeout(longest_seconds, connect=_CONNECT_TIMEOUT_SECONDS),
            )
        except httpx.TimeoutException as error:
            raise ControlUnreachableError("The control API did not answer in time.") from error
        except httpx.HTTPError as error:
            raise ControlUnreachableError("The control API does not answer.") from error
        if answer.is_success:
            return answer
        raise read_refusal(answer)


def _decode(answer: httpx.Response, kind: type[RecordT]) -> RecordT:
    try:
        # Not strict: a decimal or a duration may come as a string or as a number. Either way msgspec
        # reads a Decimal field from the text itself, so no money passes through a float.
        return msgspec.json.decode(answer.content, type=kind, strict=False)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ControlUnreadableError(
            f"The control API's answer could not be understood ({error})."
        ) from error
