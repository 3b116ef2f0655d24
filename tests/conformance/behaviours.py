"""The manifest: what every provider does, in sections. It is the specification and the test plan.

To add a behaviour, write its check and add a row; every subject then runs it, or says in
`subjects.py` why its API has no such thing. `scripts/generate_docs.py` makes the page of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.conformance.behaviour import Behaviour
from tests.conformance.checks import (
    answers,
    control,
    errors,
    faults,
    generators,
    mcp,
    replay,
    requests,
    services,
    tools,
    transcription,
)

SECTIONS: Mapping[str, tuple[Behaviour, ...]] = {
    "Answers": (
        Behaviour("text", "A whole answer", answers.text, answers.text_live),
        Behaviour("stream", "A streamed answer", answers.stream, answers.stream_live),
        Behaviour(
            "stream-order",
            "Deltas in order, then exactly one terminal event",
            answers.stream_order,
            answers.stream_order_live,
        ),
        Behaviour(
            "stream-early",
            "The first piece arrives before the last is written",
            answers.stream_arrives_early,
            answers.stream_arrives_early_live,
        ),
        Behaviour(
            "stream-split",
            "A stream cut into single bytes is read the same",
            answers.split_anywhere,
        ),
        Behaviour("stop-end", "Stop reason: end of turn", answers.stop_end, answers.stop_end_live),
        Behaviour(
            "stop-max-tokens",
            "Stop reason: out of tokens",
            answers.stop_max_tokens,
            answers.stop_max_tokens_live,
        ),
        Behaviour(
            "stop-sequence", "Stop sequences", answers.stop_sequence, answers.stop_sequence_live
        ),
        Behaviour("usage", "Token usage of a whole answer", answers.usage, answers.usage_live),
        Behaviour(
            "usage-stream",
            "Token usage of a stream",
            answers.usage_stream,
            answers.usage_stream_live,
        ),
        Behaviour(
            "usage-cached", "Cached input tokens", answers.usage_cached, answers.usage_cached_live
        ),
        Behaviour("usage-absent", "Usage that is not reported stays unknown", answers.usage_absent),
        Behaviour("usage-reasoning", "Reasoning tokens", answers.usage_reasoning),
        Behaviour(
            "reasoning-text", "Visible thinking, apart from the text", answers.reasoning_text
        ),
        Behaviour(
            "response-id",
            "The provider's response id and status",
            answers.response_id,
            answers.response_id_live,
        ),
        Behaviour("unicode", "Any text, byte for byte", answers.unicode, answers.unicode_live),
        Behaviour("large", "An answer of a megabyte", answers.large),
    ),
    "Requests": (
        Behaviour(
            "system-prompt",
            "System prompt, joined with system messages",
            requests.system_prompt,
            requests.system_prompt_live,
        ),
        Behaviour("multi-turn", "History", requests.multi_turn, requests.multi_turn_live),
        Behaviour(
            "prefill",
            "The assistant's last turn is continued",
            requests.prefill,
            requests.prefill_live,
            asking=requests.ask_with_prefill,
        ),
        Behaviour(
            "foreign-reasoning",
            "What another provider has signed is not sent",
            replay.foreign_reasoning,
            replay.foreign_reasoning_live,
        ),
        Behaviour("max-tokens", "Token limit", requests.max_tokens, requests.max_tokens_live),
        Behaviour(
            "temperature",
            "Temperature",
            requests.temperature,
            requests.temperature_live,
        ),
        Behaviour(
            "reasoning-level",
            "Reasoning level none, low, med, high",
            requests.reasoning_level,
            asking=requests.ask_with_reasoning,
        ),
        Behaviour("structured", "Structured output", requests.structured, requests.structured_live),
        Behaviour(
            "image-bytes",
            "Image input by its bytes",
            requests.image_bytes,
            asking=requests.ask_with_picture,
        ),
        Behaviour(
            "image-url",
            "Image input by its address",
            requests.image_url,
            asking=requests.ask_with_link,
        ),
        Behaviour("audio", "Audio input", requests.audio_input, asking=requests.ask_with_sound),
        Behaviour("authentication", "The key is sent, and never shown", requests.authentication),
        Behaviour("headers", "Configured headers are sent", requests.extra_headers),
        Behaviour(
            "unsupported-refused",
            "An option that the model does not take is refused by name",
            requests.unsupported_refused,
            requests.unsupported_refused,
        ),
        Behaviour(
            "unsupported-dropped",
            "`ignore_invalid_options` drops it and says so",
            requests.unsupported_dropped,
            requests.unsupported_dropped,
        ),
    ),
    "Tools": (
        Behaviour("tools-declared", "Tools are declared", tools.declared, tools.declared_live),
        Behaviour("tool-call", "A tool call", tools.called, tools.called_live),
        Behaviour("tool-call-text", "A tool call after some text", tools.called_after_text),
        Behaviour(
            "tool-call-bare",
            "A call without arguments",
            tools.called_without_arguments,
            tools.called_without_arguments_live,
        ),
        Behaviour("tool-arguments", "Arguments are streamed", tools.arguments_streamed),
        Behaviour("parallel-tools", "Several calls in one answer", tools.parallel),
        Behaviour(
            "parallel-switch",
            "Parallel calls can be switched off",
            tools.parallel_switch,
            asking=tools.ask_with_switch,
        ),
        Behaviour(
            "tool-result", "Tool results go back", tools.result_returned, tools.result_returned_live
        ),
        Behaviour(
            "tool-error",
            "A failed tool goes back as failed",
            tools.error_returned,
            tools.error_returned_live,
        ),
        Behaviour(
            "tool-round-trip",
            "A call, its result, and the answer",
            tools.round_trip,
            tools.round_trip_live,
        ),
        Behaviour("tool-forced", "One tool is forced", tools.forced, tools.forced_live),
        Behaviour("tool-required", "Some tool is required", tools.required, tools.required_live),
        Behaviour("tool-none", "Tools are forbidden", tools.forbidden, tools.forbidden_live),
    ),
    "Generators": (
        Behaviour("generator", "A text, again and again", generators.text, generators.text_live),
        Behaviour(
            "generator-stream", "A text while it is made", generators.stream, generators.stream_live
        ),
        Behaviour(
            "generator-contexts",
            "Prompt contexts",
            generators.contexts,
            generators.contexts_live,
        ),
        Behaviour("typed", "A value of a type", generators.typed, generators.typed_live),
        Behaviour(
            "typed-stream",
            "A value while it is made",
            generators.typed_stream,
            generators.typed_stream_live,
        ),
        Behaviour("typed-null", "Null for what is left out is no value", generators.absent_as_null),
        Behaviour(
            "typed-root",
            "A type that is no object",
            generators.wrapped,
            generators.wrapped_live,
        ),
        Behaviour(
            "typed-repair", "An answer that does not fit is asked for again", generators.repaired
        ),
        Behaviour(
            "typed-repair-stream",
            "The same in a stream, which says so",
            generators.repaired_in_stream,
        ),
        Behaviour(
            "typed-invalid", "One that never fits is an error with its text", generators.invalid
        ),
        Behaviour(
            "generator-tools",
            "Tools are called until there is an answer",
            generators.tool_loop,
            generators.tool_loop_live,
        ),
        Behaviour(
            "generator-tools-stream",
            "Tools in a stream, with their beginnings and ends",
            generators.tool_loop_stream,
            generators.tool_loop_live,
        ),
        Behaviour(
            "generator-mcp",
            "Tools of an MCP server that Penstock connects to",
            generators.mcp_loop,
            generators.mcp_loop_live,
        ),
        Behaviour(
            "generator-mcp-stream",
            "The same in a stream, with the server's progress",
            generators.mcp_loop_stream,
            generators.mcp_loop_live,
        ),
        Behaviour("typed-tools", "A value of a type, after tools", generators.typed_with_tools),
        Behaviour(
            "generator-rounds",
            "After the last round of tools comes an answer",
            generators.rounds_end,
        ),
    ),
    "MCP servers": (
        Behaviour(
            "mcp-native",
            "The provider connects to an MCP server, and its calls go back as they came",
            mcp.native,
            asking=mcp.ask_with_server,
        ),
        Behaviour(
            "mcp-native-stream",
            "A stream tells when such a call begins and ends",
            mcp.native_stream,
            asking=mcp.ask_with_server,
        ),
        Behaviour(
            "mcp-functions",
            "Functions stand beside MCP servers",
            mcp.beside_functions,
            asking=mcp.ask_with_server,
        ),
        Behaviour(
            "mcp-history",
            "Calls that another provider made are told in words",
            mcp.history,
            mcp.history_live,
        ),
        Behaviour(
            "mcp-refused",
            "Servers that no request may name are refused",
            mcp.refused,
            mcp.refused,
        ),
    ),
    "Control": (
        Behaviour(
            "cancel",
            "Cancelling a stream stops the upstream within a second",
            control.cancelled,
            control.cancelled_live,
        ),
        Behaviour(
            "cancel-while-read",
            "Cancelling wakes whoever reads",
            control.cancelled_while_read,
            control.cancelled_while_read_live,
        ),
        Behaviour(
            "cancel-by-id",
            "Cancelling by the request's id",
            control.cancelled_by_id,
            control.cancelled_by_id_live,
        ),
        Behaviour(
            "cancel-task",
            "Cancelling the caller's task",
            control.task_cancelled,
            control.task_cancelled_live,
        ),
        Behaviour(
            "drop", "Dropping the handle stops the upstream", control.dropped, control.dropped_live
        ),
        Behaviour(
            "leave", "Leaving `async with` stops the upstream", control.left, control.left_live
        ),
        Behaviour(
            "close",
            "Closing the engine stops its streams",
            control.engine_closed,
            control.engine_closed_live,
        ),
        Behaviour("back-pressure", "An unread stream stops the upstream", control.back_pressure),
        Behaviour("concurrent", "Many at once", control.concurrent, control.concurrent_live),
        Behaviour("reuse", "Connections are reused", control.connection_reused),
        Behaviour(
            "reuse-cancelled",
            "The connection of a cancelled stream is not",
            control.cancelled_is_not_reused,
        ),
    ),
    "Errors": (
        Behaviour("error-rate-limit", "Rate limit", errors.mapped("rate_limit")),
        Behaviour("error-retry-after", "Rate limit with a pause asked for", errors.retry_after),
        Behaviour("error-quota", "No credit left", errors.mapped("quota")),
        Behaviour("error-authentication", "Wrong key", errors.mapped("authentication")),
        Behaviour("error-permission", "No permission", errors.mapped("permission")),
        Behaviour(
            "error-unknown-model",
            "A model that the provider does not have",
            errors.mapped("unknown_model"),
            errors.unknown_model_live,
        ),
        Behaviour(
            "error-context-length",
            "A prompt too long for the model",
            errors.mapped("context_length"),
            errors.context_length_live,
        ),
        Behaviour(
            "error-bad-request",
            "A request that the provider refuses",
            errors.mapped("bad_request"),
            errors.bad_request_live,
        ),
        Behaviour("error-content-filter", "A filtered prompt", errors.mapped("content_filter")),
        Behaviour("error-server", "A failure of the server", errors.mapped("server_error")),
        Behaviour("error-overloaded", "An overloaded server", errors.mapped("overloaded")),
        Behaviour("refusal", "A refusal by the model", errors.refusal),
        Behaviour("filtered", "A filter that strikes in mid-answer", errors.filtered),
        Behaviour("error-in-stream", "An error in mid-stream", errors.in_stream),
        Behaviour("error-at-start", "An error as the first event", errors.in_stream_at_once),
        Behaviour("error-in-200", "An error under a good status", errors.under_200),
        Behaviour(
            "unknown-name",
            "A provider that is not configured",
            errors.unknown_name,
            errors.unknown_name,
        ),
    ),
    "Faults": (
        Behaviour(
            "malformed-event",
            "An event that cannot be read breaks the stream",
            faults.interrupted("malformed"),
        ),
        Behaviour(
            "truncated", "A stream that ends early, after any piece", faults.truncated_anywhere
        ),
        Behaviour("truncated-start", "A stream that ends at once", faults.truncated_at_once),
        Behaviour(
            "no-terminal",
            "A stream without its terminal event",
            faults.interrupted("no_terminal", after=4),
        ),
        Behaviour("cut", "A connection closed in mid-stream", faults.interrupted("cut")),
        Behaviour("reset", "A connection reset in mid-stream", faults.interrupted("reset")),
        Behaviour(
            "cut-unread",
            "A connection closed behind pieces that nobody has read yet",
            faults.interrupted_unread("cut"),
        ),
        Behaviour(
            "reset-unread",
            "A connection reset behind pieces that nobody has read yet",
            faults.interrupted_unread("reset"),
        ),
        Behaviour("html-error", "A proxy's error page", faults.html_error),
        Behaviour("html-page", "A proxy's page under a good status", faults.html_page),
        Behaviour("wrong-type", "A stream for an answer, and the other way", faults.wrong_type),
        Behaviour("not-json", "A body that is not the protocol", faults.not_json),
        Behaviour(
            "no-close", "A whole stream whose connection stays open is whole", faults.no_close
        ),
        Behaviour(
            "too-large",
            "An answer beyond the size limit",
            faults.too_large,
            pool={"max_response_bytes": 100_000},
        ),
        Behaviour("redirect", "A redirect is not followed", faults.redirected),
        Behaviour("gzip", "A compressed body", faults.gzip_body),
        Behaviour(
            "timeout-headers",
            "No response headers in time",
            faults.no_headers,
            pool={"request_timeout_s": faults.LIMIT_S, "slowest_tokens_per_s": 1e6},
        ),
        Behaviour(
            "timeout-first-token",
            "No first token in time",
            faults.no_first_token,
            pool={"first_token_timeout_s": faults.LIMIT_S},
        ),
        Behaviour(
            "timeout-idle",
            "Silence in mid-stream",
            faults.idle,
            pool={"stream_idle_timeout_s": faults.LIMIT_S},
        ),
        Behaviour(
            "timeout-pings",
            "Nothing but keep-alive pings",
            faults.only_pings,
            pool={
                "first_token_timeout_s": faults.LIMIT_S,
                "stream_idle_timeout_s": faults.LIMIT_S,
                "keep_alive_timeout_s": 2 * faults.LIMIT_S,
            },
        ),
        Behaviour(
            "timeout-own", "The request's own limit", faults.own_limit, faults.own_limit_live
        ),
        Behaviour("unreachable", "No server there", faults.unreachable),
    ),
    "Transcription": (
        Behaviour(
            "transcription",
            "The words of a recording",
            transcription.transcription,
            asking=transcription.ask_for_transcript,
        ),
        Behaviour(
            "transcription-options",
            "Language, prompt and temperature of a transcription",
            transcription.options,
        ),
        Behaviour("transcription-batch", "Many recordings, in their order", transcription.batch),
        Behaviour("transcription-errors", "Errors of a transcription", transcription.errors),
    ),
    "Embeddings, counts and health": (
        Behaviour(
            "embedding",
            "One text",
            services.embedding,
            services.embedding,
            asking=services.ask_for_embedding,
        ),
        Behaviour(
            "embedding-batch",
            "Many texts, in their order",
            services.embedding_batch,
            services.embedding_batch,
        ),
        Behaviour(
            "embedding-dimensions",
            "Chosen dimensions",
            services.embedding_dimensions,
            services.embedding_dimensions,
        ),
        Behaviour("embedding-split", "More texts than one call takes", services.embedding_split),
        Behaviour(
            "count-tokens",
            "Tokens of a prompt, counted by the provider",
            services.count_tokens,
            services.count_tokens_live,
        ),
        Behaviour(
            "count-estimated",
            "Tokens of a prompt, estimated where nobody counts",
            services.count_estimated,
        ),
        Behaviour("models", "Model list", services.model_list, services.model_list),
        Behaviour("health-down", "Health of a server that is not there", services.health_down),
    ),
}

BEHAVIOURS: Mapping[str, Behaviour] = {
    behaviour.id: behaviour for section in SECTIONS.values() for behaviour in section
}
