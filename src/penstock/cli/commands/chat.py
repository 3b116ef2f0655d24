"""`penstock chat`: a conversation."""

from __future__ import annotations

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock chat
  penstock chat -m groq/llama-3.3-70b-versatile --system "Answer in French."
  printf 'My name is Ann.\\nWhat is my name?\\n' | penstock chat

Ctrl-C stops an answer, Ctrl-D leaves, /help lists the commands.
When lines are piped in, each is a turn, and the first error ends the chat.
"""


def chat(
    *,
    system: options.System = None,
    model: options.Model = None,
    max_tokens: options.MaxTokens = options.DEFAULT_MAX_TOKENS,
    temperature: options.Temperature = None,
    config: options.ConfigFile = None,
) -> None:
    """Talk with a model that remembers the conversation."""
    from penstock.cli.actions.chat import Chat
    from penstock.cli.ui.inputs import argument

    Chat.run(
        config,
        model=model,
        system=argument(system) if system else None,
        max_tokens=max_tokens,
        temperature=temperature,
    )
