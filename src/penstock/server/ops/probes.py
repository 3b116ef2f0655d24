"""What those who run a gateway ask of it: is it ready, and what has it done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from penstock.budget.reports import Balance
from penstock.contract.errors import PenstockError
from penstock.engine.engine import Engine
from penstock.keys.keyring import Keyring
from penstock.server.admin.targets import Targets
from penstock.server.dispatch import Route, Routes
from penstock.server.exchange import Exchange
from penstock.server.ops.state_metrics import StateMetrics
from penstock.server.process.peers import Question, Siblings
from penstock.telemetry.exporters.prometheus import PrometheusMetrics
from penstock.telemetry.merge import Samples

_UNAVAILABLE = 503
ANSWERED_S = 0.75
"""After so long `/ready` says no, so that it answers within a second."""
FRESH_S = 0.5
"""How long the outcome of a probe holds."""
METRICS_TYPES = ("text/plain", "application/openmetrics-text")
"""What Prometheus may ask for."""


class Readiness:
    """`GET /ready`: whether a request would be served now, and if not, why.

    The keys must be known, the ledger must take a write, and the default model must have a target
    that is asked. Where keys are asked for, only operators see more than whether.
    """

    def __init__(self, keys: Keyring, draining: Callable[[], bool] = lambda: False) -> None:
        """Of a gateway with these keys; while it is `draining`, it is not ready."""
        self._keys = keys
        self._draining = draining
        self._engine: Engine | None = None
        self._probe: asyncio.Task[int] | None = None
        self._probed = 0.0

    async def __call__(self, engine: Engine, exchange: Exchange) -> None:
        """Answer within a second, whatever is locked."""
        (budgets, *first), *more = await asyncio.gather(self._ledger(engine), _model(engine))
        problems = [each for each in (*first, *more) if each]
        if self._draining():
            problems.append("the gateway stops soon: it finishes what runs and takes what comes")
        if self._keys.problem is not None:
            problems.append(f"keys: {self._keys.problem}")
        body: dict[str, object] = {"status": "unready" if problems else "ready"}
        if exchange.access is None or exchange.access.operator:
            body |= {
                "problems": problems,
                "budgets": budgets,
                "targets": engine.target_health(),
                "background": engine.background(),
            }
        status = _UNAVAILABLE if problems else 200
        await exchange.reply(msgspec.json.encode(body), status=status)

    async def _ledger(self, engine: Engine) -> tuple[int | None, str | None]:
        """How many budgets there are, and what is wrong with the ledger."""
        try:
            engine.stores.of(engine.config.storage.path).check()
            async with asyncio.timeout(ANSWERED_S):
                return await asyncio.shield(self._probing(engine)), None
        except TimeoutError:
            return (
                None,
                f"ledger: no answer within {ANSWERED_S} s: it is locked, or its disk is slow",
            )
        except PenstockError as error:
            return None, f"ledger: {error.message}"

    def _probing(self, engine: Engine) -> asyncio.Task[int]:
        """One probe for all who ask, so that nobody can make the gateway write without end."""
        now = asyncio.get_running_loop().time()
        probe = self._probe
        if (
            probe is None
            or self._engine is not engine
            or (probe.done() and now - self._probed > FRESH_S)
        ):
            self._engine, self._probed = engine, now
            probe = self._probe = asyncio.create_task(_probe(engine))
            # When it fails, there may be no one left who waits for it.
            probe.add_done_callback(lambda done: done.cancelled() or done.exception())
        return probe


async def _probe(engine: Engine) -> int:
    await (await engine.ledger()).probe()
    return len(await engine.budgets())


async def _model(engine: Engine) -> str | None:
    """What is wrong with the default model."""
    try:
        async with asyncio.timeout(ANSWERED_S):
            ranked = (await engine.route("ready?")).ranked
    except TimeoutError:
        return f"default model: it was not routed within {ANSWERED_S} s"
    except PenstockError as error:
        return f"default model: {error.message}"
    if any(each.available for each in ranked):
        return None
    reasons = [f"{each.target}: {'; '.join(each.reasons)}" for each in ranked]
    return f"no target of the default model is well: {', '.join(reasons)}"


class Metrics:
    """`GET /metrics`, for Prometheus."""

    def __init__(self, metrics: PrometheusMetrics, siblings: Siblings) -> None:
        """Of these counters, and those of other workers."""
        self._metrics = metrics
        self._siblings = siblings

    async def __call__(self, engine: Engine, exchange: Exchange) -> None:
        """In the format that the scraper prefers; all workers together."""
        accept = exchange.headers.get(b"accept", b"").decode("latin-1")
        others = [Samples(each) for each in await self._siblings.ask(Question.METRICS)]
        targets = await Targets(self._siblings).all(engine)
        states = StateMetrics(await _budgets(engine), targets.targets)
        body, content_type = self._metrics.exposition(accept, others, states)
        await exchange.reply(body, content_type=content_type.encode())


async def _budgets(engine: Engine) -> Sequence[Balance] | None:
    """The budgets; None when the ledger does not answer soon: the other metrics must be served."""
    try:
        async with asyncio.timeout(ANSWERED_S):
            return await engine.budgets()
    except (PenstockError, TimeoutError):
        return None


def routes(
    metrics: PrometheusMetrics,
    siblings: Siblings,
    keys: Keyring,
    draining: Callable[[], bool] = lambda: False,
) -> Routes:
    """The paths of this page."""
    return {
        ("GET", "/ready"): Route(Readiness(keys, draining), needs="optional"),
        ("GET", "/metrics"): Route(Metrics(metrics, siblings), needs="metrics"),
    }
