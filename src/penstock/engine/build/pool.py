"""Build the pool, its limits and the sampling policy from the configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.config.settings import (
    Config,
)
from penstock.contract.ports import Provider
from penstock.mcp.host.policy import SamplingPolicy, ServerRule
from penstock.pipeline.limits import Limits
from penstock.pool.failover import FailoverPool
from penstock.pool.plan import RetrySettings
from penstock.pool.targets.breaker import BreakerSettings
from penstock.pool.targets.states import TargetStates

if TYPE_CHECKING:
    pass


def limits_of(config: Config) -> Limits:
    """How much one request may hold."""
    return Limits(**{name: getattr(config.limits, name) for name in Limits.__struct_fields__})


def sampling_policy(config: Config) -> SamplingPolicy:
    """What MCP servers may ask this configuration's models for."""
    sampling = config.sampling
    return SamplingPolicy(
        approval=sampling.approval,
        servers={
            name: ServerRule(**server.model_dump(exclude={"budget"}))
            for name, server in sampling.servers.items()
        },
        review_answers=sampling.review_answers,
        timeout_s=sampling.approval_timeout_s,
    )


def pool_of(config: Config, provider: Callable[[str], Provider]) -> FailoverPool:
    """A pool with the patience that this configuration has."""
    pool = config.pool
    breaker = BreakerSettings(
        pool.breaker_failures, pool.breaker_cooldown_s, pool.breaker_half_open_successes
    )
    places = {
        name: each.max_concurrent for name, each in config.providers.items() if each.max_concurrent
    }
    return FailoverPool(
        provider,
        states=TargetStates(breaker, places, longest_pause_s=pool.longest_pause_s),
        settings=RetrySettings(
            pool.retries,
            pool.longest_retry_wait_s,
            pool.hedge_quantile,
            pool.retry_empty_answers,
            pool.first_token_timeout_s,
            pool.slowest_tokens_per_s,
        ),
        mid_stream=pool.mid_stream,
    )
