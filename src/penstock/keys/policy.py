"""What one key allows: which models, how many requests and tokens a minute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from penstock.contract.errors import ModelNotFound, RateLimited, shown
from penstock.contract.exchange import AnyRequest, EmbeddingRequest, SamplingRequest
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target
from penstock.contract.requests import Caller
from penstock.keys.rate_limit import AnyWindow, Step, WindowOf, window_of
from penstock.keys.records import Key
from penstock.tokens import family_of, thinking_apart, upper_text, upper_tokens

MessageKind: TypeAlias = Literal["messages", "cancels"]
"""MCP messages that ask no model and no tool; those that cancel have a limit of their own."""
_LEAST_MESSAGES, _MESSAGES_A_REQUEST = 6_000, 20


class KeyAdmission:
    """A request that a key has let through."""

    __slots__ = ("_step", "_taken", "_window", "targets")

    def __init__(
        self, targets: Sequence[Target], window: AnyWindow | None, step: Step | None, taken: int
    ) -> None:
        """Made by `KeyTerms.admit`."""
        self.targets = targets
        self._window = window
        self._step = step
        self._taken = taken

    def settle(self, usage: Usage | None) -> None:
        """Put what was used in the place of what was expected."""
        if self._window is None or self._step is None:
            return
        used = 0 if usage is None else (usage.total_tokens or 0)
        self._window.correct(self._step, used - self._taken)
        self._taken = used


class KeyTerms:
    """A key at work; its windows go on when its definition changes."""

    __slots__ = (
        "_messages",
        "_names",
        "_prefixes",
        "_targets",
        "_windows",
        "caller",
        "key",
        "requests",
        "tokens",
    )

    def __init__(
        self,
        key: Key,
        models: Mapping[str, Iterable[str]],
        before: KeyTerms | None = None,
        windows: WindowOf = window_of,
    ) -> None:
        """`models` are the configured ones with their targets; `before` is the key until now."""
        self.key = key
        self._names = frozenset(key.models)
        self._prefixes = tuple(name[:-1] for name in key.models if name.endswith("/*"))
        targets = (models[name] for name in self._names if name in models)
        self._targets = frozenset(target for several in targets for target in several)

        def window(kind: str, limit: int | None, before: AnyWindow | None) -> AnyWindow | None:
            return None if limit is None else windows(f"{key.id}/{kind}", limit, before)

        self.requests = window("requests", key.requests_per_minute, before and before.requests)
        self.tokens = window("tokens", key.tokens_per_minute, before and before.tokens)
        self._windows = windows
        self._messages: dict[MessageKind, AnyWindow] = {} if before is None else before._messages
        self.caller = Caller(key=key.id, tags=key.tags, terms=self)
        """On whose behalf this key's requests are made."""

    def __repr__(self) -> str:
        return f"KeyTerms({self.key.id!r})"

    def messages(self, kind: MessageKind) -> AnyWindow | None:
        """The limit of these MCP messages a minute; None for a key without a limit of requests.

        It is made with the first of them: most keys send none.
        """
        requests = self.key.requests_per_minute
        if requests is None:
            return None
        limit = max(_LEAST_MESSAGES, _MESSAGES_A_REQUEST * requests)
        window = self._windows(f"{self.key.id}/{kind}", limit, self._messages.get(kind))
        self._messages[kind] = window
        return window

    def may_use(self, model: str) -> bool:
        """Whether a request may name this model."""
        return not self._names or model in self._names or model.startswith(self._prefixes)

    def count(self, request: AnyRequest, ranked: Sequence[Target]) -> int | None:
        """Return the tokens that the request may take; None where none are counted. Thread-safe."""
        if self.tokens is None:
            return None
        return _tokens(request, self.allowed(request, ranked)[0].model)

    def admit(
        self, request: AnyRequest, ranked: Sequence[Target], tokens: int | None = None
    ) -> KeyAdmission:
        """Let a request through; raises ModelNotFound, or RateLimited with the time to wait.

        `tokens` is the result of `count`, if it is known.
        """
        targets = self.allowed(request, ranked)
        window = self.tokens
        if window is None:
            return KeyAdmission(targets, None, None, 0)
        wanted = _tokens(request, targets[0].model) if tokens is None else tokens
        step = window.take(wanted)
        if step is None:
            raise self._too_many(window, wanted)
        return KeyAdmission(targets, window, step, wanted)

    def allowed(self, request: AnyRequest, ranked: Sequence[Target]) -> Sequence[Target]:
        """Return those of the targets that the key may use; raises ModelNotFound for none."""
        model = request.model
        if not self._names:
            return ranked
        if model:
            fallbacks = request.fallback_models if isinstance(request, SamplingRequest) else ()
            for name in (model, *fallbacks):
                if not self.may_use(name):
                    raise not_for_this_key(name)
            return ranked
        # Without a name, hints may have brought targets of any model here.
        mine = [target for target in ranked if self._may_reach(str(target))]
        if not mine:
            raise not_for_this_key(None)
        return mine

    def _may_reach(self, target: str) -> bool:
        return target in self._targets or self.may_use(target)

    def _too_many(self, window: AnyWindow, wanted: int) -> RateLimited:
        limit = f"the key {self.key.name!r} may use {window.limit} tokens a minute"
        if wanted > window.limit:
            return RateLimited(
                f"{limit}, and this request may take {wanted}: send less, or lower max_tokens",
                retryable=False,
            )
        wait = window.wait_s(wanted)
        return RateLimited(
            f"{limit}; this request may take {wanted}, and {window.remaining} are left: "
            f"try again in {wait:.0f} s",
            retry_after=wait,
        )


def not_for_this_key(model: str | None) -> ModelNotFound:
    """The same words for a model that is not there and for one that the key may not use."""
    what = (
        f"there is no model {shown(model)} for this key" if model else "this request names no model"
    )
    return ModelNotFound(f"{what}; GET /v1/models lists those that it may use", model=model)


def _tokens(request: AnyRequest, model: str) -> int:
    """The most that a request can take."""
    if isinstance(request, SamplingRequest):
        return upper_tokens(request, model) + request.max_tokens + thinking_apart(model)
    if isinstance(request, EmbeddingRequest):
        family = family_of(model)
        return sum(upper_text(text, family) for text in request.texts)
    # Nobody knows how much is said in a recording; it is counted afterwards.
    return 0
