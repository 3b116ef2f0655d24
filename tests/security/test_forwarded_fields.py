"""No key reaches another model, route, tool or tariff by a field that a provider is sent."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from penstock.keys.records import hash_of, new_text
from penstock.providers.caller_fields import steering
from penstock.providers.registry import BUILT_IN
from tests.support.keyed import bearer
from tests.unit.server.extras_support import Upstream, upstream
from tests.unit.server.gateway_support import Gateway, running_gateway

_TURNS: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
DOORS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "openai_chat": ("/v1/chat/completions", _TURNS),
    "openai_responses": ("/v1/responses", {"input": "Hi", "max_output_tokens": 9}),
    "anthropic": ("/v1/messages", _TURNS),
}
WIRED = {name: kind for name, kind in BUILT_IN.items() if kind.dialect_name in DOORS}

ANY_CHAT: Mapping[str, Any] = {
    "models": ["big"],
    "fallbacks": [{"model": "big"}],
    "api_base": "http://10.0.0.1/v1",
    "base_url": "http://10.0.0.1/v1",
    "custom_llm_provider": "openai",
    "extra_body": {"model": "big"},
    "extra_headers": {"x-model": "big"},
    "service_tier": "priority",
    "web_search_options": {},
}
# What the documentation of each kind describes, and values that have the effect.
KNOWN: Mapping[str, Mapping[str, Any]] = {
    "anthropic": {
        "service_tier": "priority",
        "speed": "fast",
        "container": "container_of_another_caller",
        "inference_geo": "us",
        "user_profile_id": "another",
    },
    "cerebras": {"service_tier": "priority"},
    "deepinfra": {"service_tier": "priority"},
    "fireworks": {
        "service_tier": "priority",
        "speculation": "m2",
        "prompt_cache_isolation_key": "x",
    },
    "groq": {
        "service_tier": "performance",
        "compound_custom": {"models": {"answering_model": "big"}},
        "search_settings": {"include_images": True},
        "documents": [{"source": {"type": "url", "url": "http://10.0.0.1/"}}],
    },
    "llamacpp": {"lora": [{"id": 0, "scale": 1}], "id_slot": 3},
    "lmstudio": {"draft_model": "big", "ttl": 1},
    "mistral": {"guardrails": [{}], "agent_id": "ag_1"},
    "nvidia": {"nvext": {"annotations": []}},
    "openai": {"service_tier": "priority", "container": "cntr_1", "plugins": [{"id": "web"}]},
    "openai-chat": {
        **ANY_CHAT,
        "model_list": [{"model_name": "m"}],
        "context_window_fallbacks": [{}],
        "content_policy_fallbacks": [{}],
        "user_config": {"model_list": []},
        "litellm_params": {"model": "big"},
        "router_settings": {},
        "api_key": "k",
        "api_version": "1",
        "organization": "o",
        "aws_region_name": "x",
        "guardrails": ["x"],
        "mcp_servers": [{"url": "http://10.0.0.1/"}],
        "prompt_id": "p",
        "prompt_variables": {},
        "background": True,
        "conversation": "c",
        "previous_response_id": "r",
        "prompt": {"id": "p"},
        "best_of": 50,
        "use_beam_search": True,
        "speed": "fast",
        "priority": -1,
    },
    "openrouter": {
        "models": ["big"],
        "route": "fallback",
        "provider": {"order": ["x"]},
        "plugins": [{"id": "web"}],
        "transforms": ["middle-out"],
        "preset": "big",
        "web_search_options": {"search_context_size": "high"},
        "service_tier": "priority",
        "max_price": {"prompt": 9},
        "session_id": "s",
        "zdr": True,
    },
    "perplexity": {
        "web_search_options": {"search_context_size": "high"},
        "search_type": "pro",
        "num_search_results": 50,
        "media_response": {},
    },
    "together": {"safety_model": "big"},
    "vllm": {
        "kv_transfer_params": {"remote_host": "10.0.0.1"},
        "vllm_xargs": {},
        "chat_template": "{{ x }}",
        "mm_processor_kwargs": {"num_crops": 999},
        "priority": -1,
        "best_of": 50,
        "use_beam_search": True,
    },
    "xai": {"search_parameters": {"mode": "on"}, "deferred": True},
}
UNKNOWN = {"a_field_of_tomorrow": {"model": "big"}}
HARMLESS: Mapping[str, Mapping[str, Any]] = {
    # What the SDKs and coding agents send.
    "openai_chat": {
        "top_p": 0.5,
        "seed": 7,
        "logit_bias": {"1": 1},
        "service_tier": "auto",
        "store": False,
        "prompt_cache_key": "k",
        "verbosity": "low",
        "top_k": 5,
        "chat_template_kwargs": {"enable_thinking": False},
        "models": None,
    },
    "openai_responses": {
        "top_p": 0.5,
        "truncation": "auto",
        "prompt_cache_key": "k",
        "service_tier": "flex",
        "max_tool_calls": 3,
    },
    "anthropic": {
        "top_p": 0.5,
        "top_k": 5,
        "context_management": {"edits": []},
        "service_tier": "standard_only",
        "speed": "standard",
    },
}


@dataclass
class Scene:
    """A gateway with two keys before a provider that keeps what it is sent."""

    gateway: Gateway
    seen: Upstream
    keys: Mapping[str, str]
    path: str
    body: Mapping[str, Any]

    async def ask(self, key: str, fields: Mapping[str, Any], **headers: str) -> tuple[int, Any]:
        answer = await self.gateway.client.post(
            self.path,
            json={**self.body, "model": "default", **fields},
            headers={**bearer(self.keys[key]), **headers},
        )
        return answer.status_code, answer.json()


@contextlib.asynccontextmanager
async def scene(kind: str, **settings: Any) -> AsyncGenerator[Scene]:
    async with upstream(kind) as seen:
        keys = {"limited": new_text(), "free": new_text()}
        config = Config.model_validate(
            {
                "providers": {"one": {"kind": kind, "url": seen.url, "auth_token": "k"}},
                "models": {
                    "default": {
                        "targets": ["one/m"],
                        "prices": {"one/m": {"input": 1.0, "output": 1.0}},
                    }
                },
                "pool": {"retries": 0},
                "keys": {
                    "limited": {"hash": hash_of(keys["limited"]), "models": ["default"]},
                    "free": {"hash": hash_of(keys["free"])},
                },
                **settings,
            }
        )
        path, body = DOORS[str(BUILT_IN[kind].dialect)]
        engine = Engine(config, model_files=False, keep_books=True)
        async with running_gateway(engine) as gateway:
            yield Scene(gateway, seen, keys, path, body)


def table(kind: str) -> Mapping[str, Any]:
    general: Mapping[str, Any] = ANY_CHAT if BUILT_IN[kind].dialect == "openai_chat" else {}
    return {**general, **KNOWN.get(kind, {})}


def test_the_table_has_every_field_that_one_kind_alone_knows() -> None:
    for name, kind in WIRED.items():
        general = steering("", kind.dialect_name)
        own = set(steering(name, kind.dialect_name)) - set(general)
        assert own <= set(table(name)), name


@pytest.mark.parametrize("kind", WIRED)
async def test_a_key_for_some_models_sends_none_of_them(kind: str) -> None:
    async with scene(kind) as at:
        for name, value in {**table(kind), **UNKNOWN}.items():
            status, answer = await at.ask("limited", {name: value})
            assert status == 400, (name, answer)
            message = answer["error"]["message"]
            assert message.startswith(f"`{name}` "), message
            assert "this key is for certain models only: leave it out" in message
            if kind != "anthropic":
                assert answer["error"]["param"] == name
                assert answer["error"]["code"] == "unsupported_parameter"
        assert at.seen.bodies == []


@pytest.mark.parametrize("kind", WIRED)
async def test_a_key_for_all_models_sends_all_of_them(kind: str) -> None:
    fields = {**table(kind), **UNKNOWN}
    async with scene(kind) as at:
        status, answer = await at.ask("free", fields)
        assert status == 200, answer
        assert fields.items() <= at.seen.bodies[0].items()


@pytest.mark.parametrize("kind", WIRED)
async def test_what_shapes_one_answer_passes_with_every_key(kind: str) -> None:
    fields = HARMLESS[str(BUILT_IN[kind].dialect)]
    async with scene(kind) as at:
        for key in at.keys:
            status, answer = await at.ask(key, fields)
            assert status == 200, answer
            assert fields.items() <= at.seen.bodies.pop().items()


async def test_the_operator_may_permit_a_field() -> None:
    fields = {"provider": {"order": ["x"]}, **UNKNOWN}
    async with scene("openrouter", server={"forwarded_fields": list(fields)}) as at:
        status, answer = await at.ask("limited", fields)
        assert status == 200, answer
        assert fields.items() <= at.seen.bodies[0].items()


@pytest.mark.parametrize("own", [True, False], ids=["of the key", "of all"])
async def test_a_hard_budget_refuses_what_it_cannot_price(own: bool) -> None:
    narrowed = {"key": "free"} if own else {}
    budgets = {"cap": {"limit_usd": 5, "hard": True, **narrowed}}
    async with scene("openrouter", budgets=budgets) as at:
        for name in ("models", "service_tier", "plugins"):
            status, answer = await at.ask("free", {name: table("openrouter")[name]})
            assert status == 400
            assert f"`{name}`" in answer["error"]["message"]
            assert "budget 'cap' is hard: leave it out" in answer["error"]["message"]
        assert at.seen.bodies == []
        status, answer = await at.ask("free", {"service_tier": "flex", **UNKNOWN})
        assert status == 200, answer


async def test_a_soft_budget_refuses_none() -> None:
    budgets = {"cap": {"limit_usd": 5, "hard": False}, "other": {"limit_usd": 5, "key": "limited"}}
    async with scene("openrouter", budgets=budgets) as at:
        status, answer = await at.ask("free", {"models": ["big"]})
        assert status == 200, answer


async def test_a_model_that_the_key_may_not_use_is_refused_first() -> None:
    async with scene("openrouter") as at:
        for model in ("one/m", "nothing"):
            status, answer = await at.ask("limited", {"models": ["big"], "model": model})
            assert status == 404
            assert "for this key" in answer["error"]["message"]


HOSTED: tuple[Mapping[str, Any], ...] = (
    {"type": "web_search"},
    {"type": "web_search_20260209", "name": "web_search"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "mcp", "server_label": "x", "connector_id": "c", "require_approval": "never"},
    {"type": "mcp", "server_label": "x", "server_url": "http://10.0.0.1/mcp"},
    {"type": "computer_use_preview"},
)


@pytest.mark.parametrize("kind", ["openai", "openai-chat", "anthropic"])
async def test_tools_that_the_provider_runs_are_refused_for_every_key(kind: str) -> None:
    async with scene(kind) as at:
        for key in at.keys:
            for tool in HOSTED:
                status, answer = await at.ask(key, {"tools": [tool]})
                assert status == 400, answer
                assert "tools[0]" in str(answer)
        assert at.seen.bodies == []


@pytest.mark.parametrize("kind", ["openai", "openrouter", "anthropic"])
async def test_no_header_of_a_caller_reaches_a_provider(kind: str) -> None:
    headers = {
        "anthropic-beta": "fast-mode",
        "openai-organization": "another",
        "openai-project": "another",
        "x-litellm-tags": "big",
        "x-portkey-config": "pc-1",
        "helicone-target-url": "http://10.0.0.1/",
        "x-model": "big",
        "cookie": "session=1",
    }
    async with scene(kind) as at:
        status, answer = await at.ask("free", {}, **headers)
        assert status == 200, answer
        (sent,) = at.seen.headers
        assert not set(headers) & {name.lower() for name in sent}
        assert set(headers.values()).isdisjoint(sent.values())


async def test_sampling_passes_no_field_on() -> None:
    async with scene("openrouter") as at:
        turn = {"role": "user", "content": {"type": "text", "text": "Hi"}}
        answer = await at.gateway.client.post(
            "/v1/sampling/createMessage",
            json={
                "messages": [turn],
                "maxTokens": 9,
                "model": "default",
                "models": ["big"],
                "metadata": {"models": ["big"], "provider": {"order": ["x"]}},
                "extra": {"dialect": "openai-chat", "fields": {"models": ["big"]}},
            },
            headers=bearer(at.keys["free"]),
        )
        assert answer.status_code == 200, answer.text
        assert set(at.seen.bodies[0]) == {"model", "messages", "max_tokens"}
