"""Cost of cutting streams into events: Penstock beside a bare split, httpx-sse and botocore.

The bare split knows the one shape it is given and nothing else: no other line ends, no comments, no
multi-line data, no limit. It is the floor. httpx-sse gets the same reads through its public API, an
`EventSource` over an `httpx` response, as in its own client; no network is involved. All decoders
must give the same events, or the bench fails.

Amazon's event stream, which Bedrock sends, is measured beside botocore's buffer and a bare cut by
the lengths that checks nothing and reads no header.

Run: python bench/sse.py [--quick] [--json]
"""

from __future__ import annotations

import platform
import struct
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, cast

from _support import (
    Arguments,
    hand_over,
    median_seconds,
    parse_arguments,
    print_table,
    run_worker,
    throwaway_python,
)

PEERS = ("httpx-sse", "httpx", "botocore")
WORDS = (" the", " water", " flows", " through", " a", " naïve", " pen", "stock", ",", " größer")

Event = tuple[str, bytes]
Feed = Callable[[bytes], Sequence[object]]
NewFeed = Callable[[], Feed]


def chat_events(count: int) -> list[bytes]:
    """Data-only events of about a hundred bytes, as OpenAI's chat completions send them."""
    text = 'data: {{"id":"chatcmpl-{}","choices":[{{"index":0,"delta":{{"content":"{}"}}}}]}}\n\n'
    events = [text.format(7_000_000 + at, WORDS[at % len(WORDS)]) for at in range(count - 1)]
    return [event.encode() for event in events] + [b"data: [DONE]\n\n"]


def named_events(count: int) -> list[bytes]:
    """Events of two lines, as Anthropic's messages and OpenAI's responses send them."""
    text = (
        'event: content_block_delta\ndata: {{"type":"content_block_delta","index":0,'
        '"delta":{{"type":"text_delta","text":"{}"}}}}\n\n'
    )
    events = [text.format(WORDS[at % len(WORDS)]).encode() for at in range(count - 2)]
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    return [ping, *events, b'event: message_stop\ndata: {"type":"message_stop"}\n\n']


def in_reads(events: list[bytes], size: str) -> list[bytes]:
    """Cut the stream as a connection might deliver it."""
    amount, unit = size.split()
    if unit != "KiB":
        step = int(amount)
        return [b"".join(events[at : at + step]) for at in range(0, len(events), step)]
    body, step = b"".join(events), int(amount) * 1024
    return [body[at : at + step] for at in range(0, len(body), step)]


def bare_data(separator: bytes) -> Feed:
    """The floor for data-only events: split, cut off `data: `, keep the rest for the next read."""
    held = b""

    def feed(read: bytes) -> list[bytes]:
        nonlocal held
        parts = (held + read).split(separator)
        held = parts.pop()
        return [part[6:] for part in parts]

    return feed


def bare_named() -> Feed:
    """The floor for events of two lines."""
    held = b""

    def feed(read: bytes) -> list[tuple[bytes, bytes]]:
        nonlocal held
        parts = (held + read).split(b"\n\n")
        held = parts.pop()
        pairs = [part.partition(b"\n") for part in parts]
        return [(name[7:], data[6:]) for name, _, data in pairs]

    return feed


def penstock_decoder() -> Feed:
    return import_module("penstock.streaming.sse").SSEDecoder().feed


def httpx_sse_events(reads: list[bytes]) -> Iterator[Any]:
    httpx, httpx_sse = import_module("httpx"), import_module("httpx_sse")
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    response = httpx.Response(200, headers=headers, content=iter(reads))
    return httpx_sse.EventSource(response).iter_sse()


def feed_all(feed: Feed, reads: list[bytes]) -> None:
    for read in reads:
        feed(read)


def feed_to_new(make: NewFeed, reads: list[bytes]) -> None:
    feed_all(make(), reads)


def plain(event: Any) -> Event:
    """Any decoder's event as name and data."""
    if isinstance(event, bytes):
        return "message", event
    if isinstance(event, tuple):
        name, data = cast("tuple[bytes, bytes]", event)
        return name.decode(), data
    data = event.data
    return event.event, data.encode() if isinstance(data, str) else data


def expected(events: list[bytes]) -> list[Event]:
    """The events as they were meant, taken apart one by one."""
    result: list[Event] = []
    for event in events:
        fields = dict(line.split(b": ", 1) for line in event.splitlines() if line)
        result.append((fields.get(b"event", b"message").decode(), fields[b"data"]))
    return result


def measure(
    events: list[bytes], reads: list[bytes], bare: NewFeed, rounds: int
) -> dict[str, float]:
    """Check that all decoders agree, then time them by turns: microseconds per event."""
    makers: dict[str, NewFeed] = {"bare": bare, "penstock": penstock_decoder}
    results = {
        name: [event for read in reads for event in feed(read)]
        for name, feed in ((name, make()) for name, make in makers.items())
    }
    results["httpx-sse"] = list(httpx_sse_events(reads))
    wanted = expected(events)
    for name, decoded in results.items():
        if [plain(event) for event in decoded] != wanted:
            sys.exit(f"{name} decodes other events than were sent, {wanted[0]} and so on")
    seconds = median_seconds(
        {
            "bare": lambda: feed_all(bare(), reads),
            "penstock": lambda: feed_all(penstock_decoder(), reads),
            # The cheapest way to run through what it yields.
            "httpx-sse": lambda: deque(httpx_sse_events(reads), maxlen=0),
        },
        rounds,
    )
    return {name: taken / len(events) * 1e6 for name, taken in seconds.items()}


def bedrock_messages(count: int) -> list[bytes]:
    """Messages of three headers, as Bedrock streams its answers."""
    fields = {
        ":event-type": "contentBlockDelta",
        ":content-type": "application/json",
        ":message-type": "event",
    }
    headers = b"".join(
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value
        for name, value in ((name, text.encode()) for name, text in fields.items())
    )
    text = '{{"contentBlockIndex":0,"delta":{{"text":"{}"}},"p":"abcdefghijklm"}}'
    messages: list[bytes] = []
    for at in range(count):
        payload = text.format(WORDS[at % len(WORDS)]).encode()
        lengths = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
        message = lengths + struct.pack(">I", zlib.crc32(lengths)) + headers + payload
        messages.append(message + struct.pack(">I", zlib.crc32(message)))
    return messages


def bare_messages() -> Feed:
    """The floor for the event stream: cut where the lengths say, and believe all of it."""
    held = b""

    def feed(read: bytes) -> list[bytes]:
        nonlocal held
        held += read
        payloads: list[bytes] = []
        at = 0
        while len(held) - at >= 8:
            total, headers = struct.unpack_from(">II", held, at)
            if len(held) - at < total:
                break
            payloads.append(held[at + 12 + headers : at + total - 4])
            at += total
        held = held[at:]
        return payloads

    return feed


def penstock_messages() -> Feed:
    return import_module("penstock.streaming.eventstream").AWSEventStreamDecoder().feed


def botocore_messages() -> Feed:
    buffer = import_module("botocore.eventstream").EventStreamBuffer()

    def feed(read: bytes) -> list[object]:
        buffer.add_data(read)
        return list(buffer)

    return feed


def measure_messages(messages: list[bytes], reads: list[bytes], rounds: int) -> dict[str, float]:
    """Check that all give the same payloads, then time them by turns: microseconds per message."""
    makers: dict[str, NewFeed] = {
        "bare": bare_messages,
        "penstock": penstock_messages,
        "botocore": botocore_messages,
    }
    (wanted,) = {
        tuple(getattr(found, "payload", found) for read in reads for found in feed(read))
        for feed in (make() for make in makers.values())
    }
    if len(wanted) != len(messages):
        sys.exit(f"{len(messages)} messages were sent and {len(wanted)} read")
    seconds = median_seconds(
        {name: partial(feed_to_new, make, reads) for name, make in makers.items()},
        rounds,
    )
    return {name: taken / len(messages) * 1e6 for name, taken in seconds.items()}


def work(arguments: Arguments) -> None:
    """Measure every shape in every size of reads; runs in the environment of the peers."""
    count, rounds = (300, 3) if arguments.quick else (6000, 31)
    chat = chat_events(count)
    shapes: list[tuple[str, list[bytes], NewFeed]] = [
        ("data", chat, lambda: bare_data(b"\n\n")),
        ("event+data", named_events(count), bare_named),
        (
            "data, CRLF",
            [event.replace(b"\n", b"\r\n") for event in chat],
            lambda: bare_data(b"\r\n\r\n"),
        ),
    ]
    rows: list[dict[str, object]] = []
    for shape, events, bare in shapes:
        for size in ("1 event", "16 events", "4 KiB", "64 KiB"):
            each = measure(events, in_reads(events, size), bare, rounds)
            rows.append({"shape": shape, "reads": size, "microseconds_per_event": each})
    messages = bedrock_messages(count)
    message_rows = [
        {
            "reads": size,
            "microseconds_per_message": measure_messages(
                messages, in_reads(messages, size), rounds
            ),
        }
        for size in ("1 event", "16 events", "4 KiB", "64 KiB")
    ]
    hand_over(
        {
            "python": platform.python_version(),
            "peers": {name: version(name) for name in PEERS},
            "events": count,
            "rounds": rounds,
            "rows": rows,
            "message_rows": message_rows,
        }
    )


def main() -> None:
    arguments = parse_arguments(__doc__)
    if arguments.worker:
        work(arguments)
        return
    # The decoder is the contract's errors, msgspec and nothing more.
    python = throwaway_python(*PEERS, "msgspec", project_dependencies=False)
    result = run_worker(python, __file__, arguments)
    for row in result["rows"]:
        each = row["microseconds_per_event"]
        row["times_bare"] = each["penstock"] / each["bare"]
        row["times_faster_than_httpx_sse"] = each["httpx-sse"] / each["penstock"]
    for row in result["message_rows"]:
        each = row["microseconds_per_message"]
        row["times_bare"] = each["penstock"] / each["bare"]
        row["times_faster_than_botocore"] = each["botocore"] / each["penstock"]
    if arguments.json:
        hand_over(result)
        return
    peers = ", ".join(f"{name} {number}" for name, number in result["peers"].items())
    print(f"Python {result['python']}, {peers}; microseconds per event, median of", end=" ")
    print(f"{result['rounds']} interleaved runs over {result['events']} events")
    print_table(
        ["shape", "reads of", "bare", "penstock", "httpx-sse", "x bare", "faster than httpx-sse"],
        [
            [
                row["shape"],
                row["reads"],
                *row["microseconds_per_event"].values(),
                row["times_bare"],
                row["times_faster_than_httpx_sse"],
            ]
            for row in result["rows"]
        ],
    )
    print("\nAmazon's event stream; microseconds per message")
    print_table(
        ["reads of", "bare", "penstock", "botocore", "x bare", "faster than botocore"],
        [
            [
                row["reads"],
                *row["microseconds_per_message"].values(),
                row["times_bare"],
                row["times_faster_than_botocore"],
            ]
            for row in result["message_rows"]
        ],
    )


if __name__ == "__main__":
    main()
