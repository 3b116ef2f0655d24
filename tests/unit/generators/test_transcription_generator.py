"""Transcription through the engine and its generators."""

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import penstock
from penstock import Audio, audio
from penstock.config.settings import Config, ModelConfig, ProviderConfig
from penstock.contract.errors import (
    AllTargetsFailed,
    ConfigurationError,
    InvalidRequest,
    ModelNotFound,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    UnsupportedOption,
)
from penstock.contract.exchange import (
    Transcript,
    TranscriptionRequest,
    TranscriptSegment,
    Usage,
)
from penstock.testing import FakeProvider, engine_with
from tests.support.raw import Peer, RawServer, whole
from tests.support.sound import wav
from tests.support.wire.form import read_form

WAV = wav()


async def test_the_result_tells_everything_that_the_provider_said() -> None:
    segments = (TranscriptSegment("Hi.", 0.0, 1.5, "A"),)
    said = Transcript(
        text="Hi.",
        model="whisper-9",
        language="english",
        duration_s=1.5,
        segments=segments,
        usage=Usage(5, 2),
        response_id="r",
        response_status="done",
    )
    fake = FakeProvider(transcripts=[said])
    async with engine_with(fake) as engine:
        result = await engine.transcribe(
            WAV, language="en", prompt="Zoë", temperature=0.5, timeout=9, model="fake/w"
        )
    assert (result.text, result.model, result.language) == ("Hi.", "whisper-9", "english")
    assert (result.duration_s, result.segments, result.usage) == (1.5, segments, Usage(5, 2))
    facts = result.metadata.as_dict()
    assert facts.pop("request_id") == result.request_id
    assert int(facts.pop("latency_ms")) >= 0
    assert facts == {
        "provider": "fake",
        "model": "whisper-9",
        "input_tokens": "5",
        "output_tokens": "2",
        "total_tokens": "7",
        "api_calls": "1",
        "tool_rounds": "0",
        "attempts": "1",
        "cost_usd": "0",
        "response_id": "r",
        "response_status": "done",
    }
    assert fake.recordings == [
        TranscriptionRequest(
            audio=audio(WAV),
            model="fake/w",
            language="en",
            prompt="Zoë",
            temperature=0.5,
            timeout=9,
        )
    ]


async def test_a_recording_is_a_part_a_path_or_bytes(tmp_path: Path) -> None:
    file = tmp_path / "note.wav"
    file.write_bytes(WAV)
    fake = FakeProvider()
    async with engine_with(fake) as engine:
        for source in (audio(WAV), WAV, file, str(file)):
            result = await engine.transcribe(source)
            assert result.text == f"{len(WAV)} bytes of audio/wav"
    assert {request.audio for request in fake.recordings} == {audio(WAV)}


async def test_a_file_that_is_no_recording_is_named(tmp_path: Path) -> None:
    async with engine_with(FakeProvider()) as engine:
        with pytest.raises(InvalidRequest, match="is not a sound; give a WAV"):
            await engine.transcribe(b"hello")
        with pytest.raises(InvalidRequest, match=r"cannot read .*nothing.wav.*check the path"):
            await engine.transcribe(tmp_path / "nothing.wav")


async def test_every_problem_is_reported_at_once_with_its_path() -> None:
    fake = FakeProvider()
    async with engine_with(fake) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.transcribe(
                Audio("A*==", "video/mp4"),
                language="english!",
                prompt=" ",
                temperature=3,
                timeout=0,
            )
    assert [problem.path for problem in caught.value.problems] == [
        "audio.mimeType",
        "audio.data",
        "language",
        "prompt",
        "temperature",
        "timeout",
    ]
    assert caught.value.request_id is not None
    assert not fake.recordings


@pytest.mark.parametrize("data", ["", "A", "é", "AAAA\n!"])
async def test_data_must_be_base64_of_something(data: str) -> None:
    async with engine_with(FakeProvider()) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.transcribe(Audio(data, "audio/wav"))
    assert [problem.path for problem in caught.value.problems] == ["audio.data"]


@pytest.mark.parametrize("language", ["en", "yue", "pt-BR", "zh-Hans-CN"])
async def test_language_codes(language: str) -> None:
    async with engine_with(FakeProvider()) as engine:
        assert (await engine.transcribe(WAV, language=language)).language == language


@pytest.mark.parametrize("language", ["", "e", "english", "en_US", "en-", "en\n"])
async def test_what_is_no_language_code(language: str) -> None:
    async with engine_with(FakeProvider()) as engine:
        with pytest.raises(InvalidRequest, match="is not a language code"):
            await engine.transcribe(WAV, language=language)


async def test_unknown_options_and_wrong_types() -> None:
    async with engine_with(FakeProvider()) as engine:
        with pytest.raises(InvalidRequest, match="lang: there is no such option"):
            await cast(Any, engine).transcribe(WAV, lang="en")
        with pytest.raises(InvalidRequest, match="temperature"):
            await cast(Any, engine).transcribe(WAV, temperature="hot")
        with pytest.raises(ModelNotFound):
            await engine.transcribe(WAV, model="nowhere")


# Targets


async def test_another_target_takes_over() -> None:
    first = FakeProvider(transcripts=[ProviderUnavailable("down")], name="first")
    second = FakeProvider(transcripts=["Hi."], name="second")
    async with engine_with(first, second) as engine:
        result = await engine.transcribe(WAV)
    assert (result.text, result.metadata.provider) == ("Hi.", "second")
    assert (result.metadata.attempts, result.metadata.api_calls) == (2, 2)


async def test_a_target_that_does_not_transcribe_is_passed_over() -> None:
    config = Config(
        providers={"fake": ProviderConfig()},
        models={"default": ModelConfig(targets=("embedded/default", "fake/echo"))},
    )
    async with penstock.open(config) as engine:
        assert (await engine.transcribe(WAV)).metadata.provider == "fake"


async def test_all_targets_may_fail() -> None:
    fakes = [FakeProvider(transcripts=[RateLimited("no")], name=name) for name in ("a", "b")]
    async with engine_with(*fakes) as engine:
        with pytest.raises(AllTargetsFailed) as caught:
            await engine.transcribe(WAV)
    assert [error.provider for error in caught.value.attempts] == ["a", "b"]


@pytest.mark.parametrize("kind", ["anthropic", "ollama", "embedded", "bedrock"])
async def test_others_refuse_by_name(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "token")
    async with penstock.open(Config()) as engine:
        with pytest.raises(UnsupportedOption) as caught:
            await engine.transcribe(WAV, model=f"{kind}/m")
        assert caught.value.options == ("transcription",)
        assert str(caught.value) == f"{kind}/m does not support transcription; choose another model"
        with pytest.raises(UnsupportedOption, match=f"{kind} offers no transcription"):
            await engine.provider(kind).transcribe("m", TranscriptionRequest(audio=audio(WAV)))


# Over HTTP


async def answer(peer: Peer) -> None:
    while await peer.request():
        await peer.send(whole(b'{"text": "Hi."}', headers="content-type: application/json\r\n"))


async def test_an_option_that_the_model_lacks_is_refused_or_dropped() -> None:
    async with RawServer(answer) as server:
        generator = penstock.transcription_generator(
            provider="openai",
            url=server.url,
            auth_token="sk-1",
            model="gpt-4o-transcribe-diarize",
            prompt="Zoë",
            temperature=1.5,
        )
        with pytest.raises(UnsupportedOption) as caught:
            await generator.generate(WAV)
        assert caught.value.options == ("prompt", "temperature")
        assert not server.requests
        lenient = penstock.transcription_generator(
            provider="openai",
            url=server.url,
            auth_token="sk-1",
            model="gpt-4o-transcribe-diarize",
            prompt="Zoë",
            temperature=1.5,
            ignore_invalid_options=True,
        )
        text, metadata = await lenient.generate(WAV)
    assert (text, metadata.dropped_options) == ("Hi.", ("prompt", "temperature"))
    (request,) = server.requests
    assert read_form(request.headers["content-type"], request.body).keys() == {
        "file",
        "model",
        "response_format",
        "chunking_strategy",
    }


async def test_the_default_model_and_headers_of_ones_own() -> None:
    async with RawServer(answer) as server:
        generator = penstock.transcription_generator(
            provider="openai-chat", url=server.url, headers={"X-Team": "a"}
        )
        text, metadata = await generator.generate(WAV)
    assert (text, metadata.model) == ("Hi.", "gpt-4o-mini-transcribe")
    (request,) = server.requests
    assert request.line == "POST /audio/transcriptions HTTP/1.1"
    assert request.headers["x-team"] == "a"
    assert request.headers["content-type"].startswith("multipart/form-data; boundary=")


async def test_a_long_recording_may_take_as_long_as_its_caller_says() -> None:
    late = asyncio.Event()

    async def slow(peer: Peer) -> None:
        while await peer.request():
            await late.wait()
            await peer.send(whole(b'{"text": "Hi."}'))

    config = Config.model_validate(
        {"providers": {"openai": {"auth_token": "k"}}, "pool": {"request_timeout_s": 0.05}}
    )
    async with RawServer(slow) as server:
        config.providers["openai"] = ProviderConfig.model_validate(
            {"auth_token": "k", "url": server.url}
        )
        async with penstock.open(config) as engine:
            with pytest.raises(ProviderTimeout, match="no response within"):
                await engine.transcribe(WAV, model="openai/whisper-1")
            late.set()
            result = await engine.transcribe(WAV, model="openai/whisper-1", timeout=20)
    assert result.text == "Hi."


# Generators


async def test_options_are_kept_for_every_recording() -> None:
    fake = FakeProvider(transcripts=["One.", "Two."])
    async with engine_with(fake) as engine:
        generator = engine.transcription_generator(language="en", prompt="Names")
        assert (await generator.generate(WAV))[0] == "One."
        text, metadata = await generator.generate(audio(WAV))
    assert (text, metadata.provider) == ("Two.", "fake")
    assert {(each.language, each.prompt) for each in fake.recordings} == {("en", "Names")}


async def test_a_batch_comes_in_order_and_no_more_at_once_than_allowed() -> None:
    running = most = 0
    full = asyncio.Event()

    class Slow(FakeProvider):
        async def transcribe(self, model: str, request: TranscriptionRequest) -> Transcript:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if running == 3:
                full.set()
            await full.wait()
            running -= 1
            return await super().transcribe(model, request)

    notes = [wav(seconds) for seconds in (0.05, 0.01, 0.03, 0.02, 0.04)]
    async with engine_with(Slow()) as engine:
        answers = await engine.transcription_generator(max_parallel=3).generate_batch(notes)
        assert await engine.transcription_generator().generate_batch([]) == []
    assert [text for text, _ in answers] == [f"{len(note)} bytes of audio/wav" for note in notes]
    assert most == 3


async def test_the_first_failure_ends_the_others() -> None:
    stopped: list[str] = []

    class Stuck(FakeProvider):
        async def transcribe(self, model: str, request: TranscriptionRequest) -> Transcript:
            if request.audio == audio(WAV):
                raise RateLimited("slow down")
            try:
                return await asyncio.get_running_loop().create_future()
            finally:
                stopped.append(request.audio.mime_type)

    async with engine_with(Stuck()) as engine:
        generator = engine.transcription_generator()
        with pytest.raises(RateLimited):
            await generator.generate_batch([wav(0.2), WAV])
    assert stopped == ["audio/wav"]


async def test_one_recording_is_no_batch() -> None:
    generator = penstock.transcription_generator(provider="fake")
    for single in (WAV, "note.wav"):
        with pytest.raises(InvalidRequest, match="give a list"):
            await generator.generate_batch(cast(Any, single))


def test_bad_options_are_found_at_once() -> None:
    with pytest.raises(InvalidRequest) as caught:
        cast(Any, penstock.transcription_generator)(
            provider="fake", language="?", prompt="", max_parallel=0, voice="x"
        )
    assert [problem.path for problem in caught.value.problems] == [
        "voice",
        "language",
        "prompt",
        "max_parallel",
    ]
    with pytest.raises(ConfigurationError, match="has no default here: give model="):
        penstock.transcription_generator(provider="vllm")
    with pytest.raises(ConfigurationError, match="there is no provider 'opnai'"):
        penstock.transcription_generator(provider="opnai")


def test_a_generator_works_in_one_event_loop_after_another() -> None:
    generator = penstock.transcription_generator(provider="fake")
    texts = {asyncio.run(generator.generate(WAV))[0] for _ in range(2)}
    assert texts == {f"{len(WAV)} bytes of audio/wav"}


# The fake


async def test_the_script_of_the_fake() -> None:
    whole_transcript = Transcript(text="Two.", duration_s=2.0)
    fake = FakeProvider(
        transcripts=[
            "One.",
            whole_transcript,
            RateLimited("no"),
            lambda request: f"in {request.language}",
        ]
    )
    request = TranscriptionRequest(audio=audio(WAV), language="de")
    first = await fake.transcribe("m", request)
    assert (first.text, first.model, first.language) == ("One.", "m", "de")
    assert await fake.transcribe("m", request) is whole_transcript
    with pytest.raises(RateLimited):
        await fake.transcribe("m", request)
    assert (await fake.transcribe("m", request)).text == "in de"
    assert (await fake.transcribe("m", request)).text == f"{len(WAV)} bytes of audio/wav"
    assert fake.recordings == [request] * 5
    assert fake.capabilities("m").transcription


def test_requests_are_values() -> None:
    request = TranscriptionRequest(audio=audio(WAV))
    assert msgspec.structs.replace(request, language="en").language == "en"
    with pytest.raises(AttributeError):
        cast(Any, request).language = "en"
