"""How many retries and fallbacks a deployment may have: a share of its requests. Pure.

When everything fails, each request that is tried again makes it worse. So a retry takes a whole
token, and a request brings only its share of one.
"""

from __future__ import annotations

# A deployment with a request now and then would otherwise wait ten requests for its first retry.
# Ten a minute are no load for any engine that serves requests of seconds; they are enough to carry
# a person who tries things out past a replica that was just restarted.
FLOOR_PER_MINUTE = 10.0
FLOOR_TOKENS = 10.0  # that the floor saves up; the budget begins with them
MAX_TOKENS = 100.0  # saved up in all, whatever the traffic was: quiet hours buy no storm


class RetryBudget:
    """The budget of one deployment in one worker.

    In any span of T seconds with R requests, at most ``MAX_TOKENS + share * R + T *
    FLOOR_PER_MINUTE / 60`` retries are let through.
    """

    __slots__ = ("_share", "_tokens", "_updated_at")

    def __init__(self, share: float, now: float) -> None:
        """``share``: retries of all requests, 0 or above; 0: none at all."""
        self._share = share
        self._tokens = FLOOR_TOKENS
        self._updated_at = now

    @property
    def tokens(self) -> float:
        """What is saved up, as of the latest call."""
        return self._tokens if self._share > 0.0 else 0.0

    def set_share(self, share: float) -> None:
        """Follow a new policy; what is saved up stays."""
        self._share = share

    def deposit(self) -> None:
        """A request came, however it will end. Retries of it do not count again."""
        tokens = self._tokens + self._share
        self._tokens = tokens if tokens < MAX_TOKENS else MAX_TOKENS

    def try_take(self, now: float) -> bool:
        """Take what one retry costs; False: there is not enough, answer with the failure."""
        if self.count_whole(now) < 1:
            return False
        self._tokens -= 1.0
        return True

    def count_whole(self, now: float) -> int:
        """Return how many retries would be let through now."""
        if self._share <= 0.0:
            return 0
        passed = now - self._updated_at
        if passed > 0.0:
            self._updated_at = now
            if self._tokens < FLOOR_TOKENS:
                self._tokens = min(self._tokens + passed * FLOOR_PER_MINUTE / 60.0, FLOOR_TOKENS)
        return int(self._tokens)
