"""What those who run a gateway ask of it: is it ready, and what has it done."""

from __future__ import annotations

import msgspec

from penstock.contract.errors import PenstockError
from penstock.gateway import Engine
from penstock.server.asgi import Route, Routes
from penstock.server.exchange import Exchange
from penstock.server.siblings import Question, Siblings
from penstock.telemetry.merged import Samples
from penstock.telemetry.prometheus import PrometheusMetrics

_UNAVAILABLE = 503
METRICS_TYPES = ("text/plain", "application/openmetrics-text")
"""What Prometheus may ask for."""


async def ready(engine: Engine, exchange: Exchange) -> None:
    """`GET /ready`: whether a request would be served now, and if not, why.

    The ledger must answer, and the default model must have a target that is asked. Where keys are
    asked for, only operators hear more than whether.
    """
    problems: list[str] = []
    try:
        budgets = len(await engine.budgets())
    except PenstockError as error:
        budgets = None
        problems.append(f"ledger: {error}")
    try:
        ranked = (await engine.route("ready?")).ranked
        if not any(each.available for each in ranked):
            reasons = [f"{each.target}: {'; '.join(each.reasons)}" for each in ranked]
            problems.append(f"no target of the default model is well: {', '.join(reasons)}")
    except PenstockError as error:
        problems.append(f"default model: {error}")
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
        body, content_type = self._metrics.exposition(accept, others)
        await exchange.reply(body, content_type=content_type.encode())


def routes(metrics: PrometheusMetrics, siblings: Siblings) -> Routes:
    """The paths of this page."""
    return {
        ("GET", "/ready"): Route(ready, needs="optional"),
        ("GET", "/metrics"): Route(Metrics(metrics, siblings), needs="operator"),
    }
