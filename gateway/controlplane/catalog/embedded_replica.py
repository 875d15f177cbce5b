"""The replica that a start of ours made: known by its label, and moved to where its engine is now."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from gateway.controlplane.catalog import service
from gateway.controlplane.catalog.engine_address import identify_engine
from gateway.controlplane.catalog.models import Deployment, Replica
from gateway.controlplane.changes import record_change
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import ConflictError

_log = logging.getLogger(__name__)

# Of the replica that is ours to move. Without it, or with another value, a replica is an admin's.
EMBEDDED_LABEL = ("forebay", "embedded")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNow:
    """The engine as it is at this start; ``agent_url``: of its agent, None where nobody named one."""

    model: str
    base_url: str
    secret: str | None = field(repr=False)
    agent_url: str | None


def find_embedded(deployment: Deployment) -> Replica | None:
    """Return the replica of the deployment that an earlier start made; None when it is gone."""
    name, value = EMBEDDED_LABEL
    for replica in deployment.replicas:
        if replica.labels.get(name) == value:
            return replica
    # Starts before the label made it and its deployment in one transaction, at one time.
    for replica in deployment.replicas:
        if not replica.labels and replica.created_at == deployment.created_at:
            replica.labels = dict([EMBEDDED_LABEL])
            return replica
    return None


async def follow_engine(
    session: WriteSession, *, deployment: Deployment, replica: Replica, engine: EngineNow
) -> bool:
    """Point a replica and its deployment at the engine as it is now; say whether that was new.

    It stays where it is if a sibling, an admin's, is there already. An agent that nobody names now
    stays as long as the engine is the same.
    """
    await service.wait_for_catalog(session)
    is_same = identify_engine(replica.base_url) == identify_engine(engine.base_url)
    wanted = (engine.base_url, engine.secret, engine.agent_url)
    if is_same and engine.agent_url is None:
        wanted = (engine.base_url, engine.secret, replica.agent_url)
    try:
        await service.check_address(session, replica, engine.base_url)
    except ConflictError as error:
        _log.warning("the replica %s is not moved to %s: %s", replica.id, engine.base_url, error)
        wanted = (replica.base_url, replica.secret, replica.agent_url)
    before = (replica.base_url, replica.secret, replica.agent_url)
    if deployment.engine_model == engine.model and before == wanted:
        return False
    deployment.engine_model = engine.model
    replica.base_url, replica.secret, replica.agent_url = wanted
    record_change(session)
    return True
