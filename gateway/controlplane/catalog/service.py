"""Making, changing and removing deployments and replicas; all of it is in the Snapshot.

``changes`` are a request's fields as far as they were given; None goes back to the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from billing.ids import new_id
from gateway.controlplane.catalog import repository
from gateway.controlplane.catalog.engine_address import identify_engine
from gateway.controlplane.catalog.models import Deployment, Replica
from gateway.controlplane.catalog.request_schemas import DeploymentChange
from gateway.controlplane.changes import record_change
from gateway.controlplane.database import WriteSession, wait_for_turn
from gateway.controlplane.errors import ConflictError, InvalidRequestError
from gateway.controlplane.unique_rows import add_unique, flush_unique

# An advisory lock of the catalog's own: what one change finds (a route that leads here, a fallback
# that exists) no other can take away before it commits.
_TURN = 0x636174616C6F
_NAME_TAKEN = "There is a deployment with this name."
# Parts of a request whose fields are columns of the deployment's own.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "capabilities": ("context_tokens", "features", "adapters"),
    "sleep": ("keep_warm_seconds", "wake_limit_seconds"),
}
# What null means for a replica; elsewhere the column itself may be null.
_REPLICA_DEFAULTS: Mapping[str, Any] = {"weight": 1.0, "is_draining": False, "labels": {}}


async def begin_change(session: WriteSession) -> None:
    """Wait until no other change of the catalog is under way; ours is recorded for the Snapshot."""
    await wait_for_catalog(session)
    record_change(session)


async def wait_for_catalog(session: WriteSession) -> None:
    """Wait until no other change of the catalog is under way; none begins until we commit."""
    await wait_for_turn(session, _TURN)


def check_given(changes: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidRequestError` for a change of nothing."""
    if not changes:
        raise InvalidRequestError("Name at least one field to change.")


async def create_deployment(
    session: WriteSession,
    *,
    name: str,
    engine_model: str,
    now: datetime,
    settings: Mapping[str, Any] | None = None,
) -> Deployment:
    """Add a deployment without replicas; ``settings`` like the changes of one."""
    await begin_change(session)
    deployment = Deployment(
        id=new_id("dep"), name=name, engine_model=engine_model, created_at=now, replicas=[]
    )
    _apply(deployment, settings or {})
    await add_unique(session, deployment, taken_message=_NAME_TAKEN)
    return deployment


async def change_deployment(
    session: WriteSession, *, deployment: str, changes: DeploymentChange
) -> Deployment:
    """Change what was given of the deployment (id or name)."""
    given = changes.get_given()
    check_given(given)
    await begin_change(session)
    found = await repository.get_deployment(session, deployment, param="deployment_id")
    async with flush_unique(session, taken_message=_NAME_TAKEN):
        _apply(found, given)
    return found


async def remove_deployment(session: WriteSession, *, deployment: str, now: datetime) -> Deployment:
    """Take the deployment (id or name) away, once no route leads to it and no replica is left.

    Raises :class:`ConflictError` otherwise.
    """
    await begin_change(session)
    found = await repository.get_deployment(session, deployment, param="deployment_id")
    routes = await repository.list_routes_to(session, found.id)
    if routes:
        raise ConflictError(f"The route {routes[0].name} leads to this deployment; move it first.")
    if found.replicas:
        raise ConflictError("The deployment has replicas; remove them first.")
    found.removed_at = now
    return found


def _apply(deployment: Deployment, given: Mapping[str, Any]) -> None:
    """Set what was given: parts by their fields, a part of None all of its fields to None."""
    for name, value in given.items():
        if name in _PARTS:
            part = dict.fromkeys(_PARTS[name]) if value is None else value.get_given()
            for field, content in part.items():
                setattr(deployment, field, content)
        elif name in {"pick", "breaker"}:
            before = getattr(deployment, name) or {}
            merged = {} if value is None else {**before, **value.get_given()}
            # A new mapping, and without what is the default: the column holds what was set.
            kept = {field: one for field, one in merged.items() if one is not None}
            setattr(deployment, name, kept or None)
        else:
            setattr(deployment, name, value)


async def add_replica(
    session: WriteSession,
    *,
    deployment: str,
    base_url: str,
    secret: str | None,
    now: datetime,
    settings: Mapping[str, Any] | None = None,
) -> Replica:
    """Add a replica to the deployment (id or name); ``settings`` like the changes of one.

    Raises :class:`ConflictError` when the deployment has this engine already.
    """
    await begin_change(session)
    owner = await repository.get_deployment(session, deployment, param="deployment_id")
    replica = Replica(
        id=new_id("rep"), base_url=base_url, secret=secret, created_at=now, **_REPLICA_DEFAULTS
    )
    _set_replica(replica, settings or {})
    await _check_free(session, owner.id, base_url)
    owner.replicas.append(replica)
    await session.flush()
    return replica


async def change_replica(
    session: WriteSession, *, replica: str, changes: Mapping[str, Any]
) -> Replica:
    """Change what was given of the replica with this id.

    Raises :class:`ConflictError` when its deployment has the engine that it shall be already.
    """
    check_given(changes)
    await begin_change(session)
    found = await repository.get_replica(session, replica)
    if "base_url" in changes:
        await check_address(session, found, changes["base_url"])
    _set_replica(found, changes)
    return found


async def check_address(session: WriteSession, replica: Replica, base_url: str) -> None:
    """Raise :class:`ConflictError` if the replica would become the same engine as a sibling.

    One that is it already, of the time before this was asked, may stay.
    """
    if identify_engine(base_url) != identify_engine(replica.base_url):
        await _check_free(session, replica.deployment_id, base_url)


async def _check_free(session: WriteSession, deployment_id: str, base_url: str) -> None:
    """Two entries of one engine would weigh twice, and a retry would find the same one again."""
    engine = identify_engine(base_url)
    for replica_id, address in await repository.list_addresses(session, deployment_id):
        if identify_engine(address) == engine:
            raise ConflictError(
                f"The deployment has a replica with this base_url already: {replica_id} ({address}).",
                param="base_url",
            )


async def remove_replica(session: WriteSession, *, replica: str, now: datetime) -> Replica:
    """Take the replica with this id away; what runs there ends by itself, nothing new comes."""
    await begin_change(session)
    found = await repository.get_replica(session, replica)
    found.removed_at = now
    return found


def _set_replica(replica: Replica, given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        setattr(replica, name, _REPLICA_DEFAULTS.get(name) if value is None else value)
