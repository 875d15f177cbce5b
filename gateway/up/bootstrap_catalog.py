"""The call of the control plane's bootstrap: what a first start should find and serve."""

from __future__ import annotations

import logging
from decimal import Decimal

from sqlalchemy.exc import SQLAlchemyError

from gateway.controlplane.bootstrap import BootstrapInput, BootstrapResult, bootstrap
from gateway.up.engine_choice import EngineChoice
from gateway.up.errors import OptionError, StartError
from gateway.up.first_run import FirstRunSecrets
from gateway.up.migrate_database import reason_of

_LOG = logging.getLogger("forebay.up")
_ORGANIZATION = "My organization"
_PROJECT = "Default project"
# US dollars per million tokens: not zero, so that spend shows; `forebay prices set` changes them.
_INPUT_PRICE = Decimal("0.10")
_CACHED_INPUT_PRICE = Decimal("0.05")
_OUTPUT_PRICE = Decimal("0.40")
# What backends/local can do; requests that need more are refused by the data plane, or go to another tier.
_LOCAL_FEATURES = ("chat", "completions", "json_schema")


def bootstrap_catalog(
    database_url: str,
    engine: EngineChoice,
    offered: FirstRunSecrets,
    *,
    admin_email: str,
    deployment: str | None = None,
) -> BootstrapResult:
    """Make what is missing and point the replica of earlier starts at where the engine is now.

    ``deployment``: the name of the engine's; None: the one of its kind. Raises :class:`OptionError` for an address the catalog refuses, :class:`StartError` when the
    database fails.
    """
    is_local = engine.local_port is not None
    try:
        result = bootstrap(
            database_url,
            BootstrapInput(
                organization_name=_ORGANIZATION,
                project_name=_PROJECT,
                admin_email=admin_email,
                admin_password=offered.admin_password,
                api_key_secret=offered.api_key_secret,
                route=engine.model,
                engine_model=engine.model,
                # A deployment each, so that trying a vLLM does not overwrite the local one.
                deployment_name=deployment or ("local" if is_local else "vllm"),
                features=_LOCAL_FEATURES if is_local else None,
                replica_base_url=engine.base_url,
                replica_secret=engine.api_key,
                replica_agent_url=engine.agent_url,
                input_per_million=_INPUT_PRICE,
                cached_input_per_million=_CACHED_INPUT_PRICE,
                output_per_million=_OUTPUT_PRICE,
            ),
        )
    except ValueError as error:
        raise OptionError(f"The engine {engine.base_url} cannot be set up: {error}.") from error
    except SQLAlchemyError as error:
        raise StartError(f"The database cannot be used: {reason_of(error)}.") from error
    _LOG.info("bootstrap made: %s", ", ".join(result.created) or "nothing")
    return result
