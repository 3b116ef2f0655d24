"""For tests of code that uses Penstock: a scripted provider, an engine that runs on it, a recorder.

```python
fake = FakeProvider(["Hello!", RateLimited("slow down")])
async with engine_with(fake) as engine:
    assert (await engine.create_message("Hi", max_tokens=9)).text == "Hello!"
assert fake.requests[0].messages[0].text == "Hi"
```
"""

from __future__ import annotations

from penstock.config.settings import Config, ModelConfig, PoolConfig, ProviderConfig
from penstock.contract.exchange import Transcript
from penstock.engine.engine import Engine
from penstock.providers.fake.provider import FakeProvider, FakeReply
from penstock.telemetry.recorder import Recorder

__all__ = ["FakeProvider", "FakeReply", "Recorder", "Transcript", "engine_with"]


def engine_with(*providers: FakeProvider, pool: PoolConfig | None = None) -> Engine:
    """An engine whose model `default` tries these providers in their order.

    Each is asked once, so that a script runs step by step; `pool` sets it otherwise.
    """
    names = [provider.name for provider in providers]
    engine = Engine(
        Config(
            providers={name: ProviderConfig(kind="fake") for name in names},
            pool=pool or PoolConfig(retries=0),
            models={"default": ModelConfig(targets=tuple(f"{name}/echo" for name in names))},
        )
    )
    for provider in providers:
        engine.use(provider)
    return engine
