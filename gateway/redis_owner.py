"""Redis Cluster without a cluster client: all keys of ours are under one hash tag, ``{forebay}``.

So one node has them all, and a client that is told ``MOVED`` goes there. A server that is no cluster
never says so.
"""

from __future__ import annotations

import redis.asyncio
from redis.asyncio.connection import BlockingConnectionPool, ConnectionPool
from redis.exceptions import MovedError

_MOST_MOVES = 3


async def go_to_owner(client: redis.asyncio.Redis, key: str) -> None:
    """Point ``client`` at the node that holds ``key``. Raises RedisError and OSError.

    Connections in use stay with who uses them.
    """
    for _ in range(_MOST_MOVES):
        try:
            await client.exists(key)
        except MovedError as moved:
            pool = client.connection_pool
            client.connection_pool = _pool_at(pool, moved)
            await pool.disconnect(inuse_connections=False)
        else:
            return


def _pool_at(pool: ConnectionPool, moved: MovedError) -> ConnectionPool:
    """Return a pool like ``pool`` at the node that is named; without a host: where we asked."""
    options = {**pool.connection_kwargs, "port": moved.port}
    if moved.host:
        options["host"] = moved.host
    if isinstance(pool, BlockingConnectionPool):
        options["timeout"] = pool.timeout
    return type(pool)(
        connection_class=pool.connection_class, max_connections=pool.max_connections, **options
    )
