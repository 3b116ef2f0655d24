"""What the commands of `penstock route` do."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import typer

from penstock.cli.actions.keys import seconds_of
from penstock.cli.actions.usage_spans import beginning, now
from penstock.cli.errors import FAILED, wrong
from penstock.cli.setup.config_file import load
from penstock.cli.setup.engines import engine_of
from penstock.cli.ui import terminal
from penstock.config.settings import Config
from penstock.contract.ports import Target
from penstock.contract.requests import Caller
from penstock.engine.build.learning import embedder_name, features_of, learns, outcomes_of
from penstock.engine.build.routing import targets_of
from penstock.engine.engine import Engine
from penstock.engine.feedback import FeedbackSource
from penstock.providers.embedded.embeddings import MODEL
from penstock.routing.outcomes.export import export as write_export
from penstock.routing.router import parse_target

if TYPE_CHECKING:
    from penstock.routing.outcomes.embed_batches import Progress

_COLUMNS = ("target", "scores", "mean score")


def train(
    config_file: str | None, file: str, prompts: str | None, model: str | None, *, as_json: bool
) -> None:
    """Bring in a file, with a bar that moves, and say what was in it."""
    config = load(config_file)
    models = _models(config, model)
    with _embedder(config) as embedder, _progress() as progress:
        features = features_of(config, embedder)
        # It brings numpy along, whose absence was told with its remedy.
        from penstock.routing.outcomes import training

        store = outcomes_of(config)
        store.guard.verify()
        trained = training.train(
            store.path,
            _path(file),
            models=models,
            features=features,
            embedder=embedder,
            prompts=None if prompts is None else _path(prompts),
            progress=progress,
        )
        store.prune()
    if not set(models) & set(learns(config)):
        terminal.say(f'note: no effect until one of {", ".join(models)} sets routing = "learned"')
    if as_json:
        terminal.print_json(trained)
        return
    rows = [(each.target, f"{each.labels:,}", f"{each.mean_score:.3f}") for each in trained.targets]
    terminal.print_table(_COLUMNS, rows)
    print(
        f"\nlearnt from {terminal.count(trained.prompts, 'prompt')}, "
        f"{terminal.count(trained.outcomes, 'outcome')}"
    )
    if trained.replaced:
        print(
            f"replaced {terminal.count(trained.replaced, 'outcome')} of an earlier training, with "
            "the same prompt ids"
        )
    if trained.known:
        print(f"left out {terminal.count(trained.known, 'outcome')} of requests served here")


def feedback(
    config_file: str | None,
    request_id: str,
    score: float,
    source: str,
    key: str | None,
    *,
    as_json: bool,
) -> None:
    """Keep what is said; a gateway that runs takes it up by itself."""
    config = load(config_file)
    said = cast(FeedbackSource, source)  # what it is not, the engine says

    async def keep() -> None:
        engine = engine_of(config)
        try:
            await engine.record_feedback(
                request_id, score=score, source=said, caller=Caller(key=key)
            )
        finally:
            await engine.aclose()

    asyncio.run(keep())
    if as_json:
        terminal.print_json({"request_id": request_id, "score": score, "source": source})
    else:
        print(f"{request_id} was worth {score:g}")


def export(
    config_file: str | None, file: str, since: str, model: str | None, *, as_json: bool
) -> None:
    """Write what has a score."""
    config = load(config_file)
    _models(config, model)
    start = beginning(since, now())
    path = _path(file)
    with terminal.waiting("writing"):
        number = write_export(
            config.storage.path,
            path,
            model=model,
            since=None if start is None else start.timestamp(),
        )
    if as_json:
        terminal.print_json({"file": str(path), "scores": number})
    else:
        print(f"wrote {terminal.count(number, 'score')} to {path}")


def forget(
    config_file: str | None, key: str | None, older_than: str | None, *, yes: bool, as_json: bool
) -> None:
    """Delete, after a question, and say how much it was."""
    config = load(config_file)
    if key is None and older_than is None:
        raise wrong("", "say what to forget: --key NAME, --older-than 30d, or both")
    age = None if older_than is None else seconds_of("--older-than", older_than)
    if not yes:
        _ask(config, key, older_than)
    store = outcomes_of(config)
    with terminal.waiting("deleting"):
        forgotten = store.forget(key=key, before=None if age is None else time.time() - age)
        shared = asyncio.run(_share(config))
    if as_json:
        terminal.print_json(msgspec.to_builtins(forgotten))
    else:
        print(
            f"forgot {terminal.count(forgotten.outcomes, 'outcome')}, "
            f"{terminal.count(forgotten.labels, 'score')}, "
            f"{terminal.count(forgotten.prompts, 'prompt')}"
        )
    if not forgotten.erased:
        terminal.say(
            "note: another process reads the file, so old pages are still in its journal; run this "
            "again later to erase them"
        )
    if not shared:
        terminal.say(
            "note: the database at [routing] index_url was not reached, and still has numbers "
            "about these prompts; a gateway that reaches it deletes them, or run this again later"
        )


async def _share(config: Config) -> bool:
    """Have an index outside of the file hold what is left, too; whether it does."""
    if config.routing.index != "pgvector":
        return True
    engine = engine_of(config, keep_books=False)
    try:
        return engine.learning is None or await engine.learning.share()
    finally:
        await engine.aclose()


def _ask(config: Config, key: str | None, older_than: str | None) -> None:
    if not terminal.is_terminal(sys.stdin):
        raise wrong("--yes", "there is no terminal to ask at: add it to delete without a question")
    what = " that are " if key is None else f" of the key {key!r}"
    if older_than is not None:
        what += f"{'' if key is None else ' that are '}older than {older_than}"
    if not typer.confirm(f"Delete all outcomes{what} in {config.storage.path}?", err=True):
        terminal.say("nothing was deleted")
        raise typer.Exit(FAILED)


class _Asked:
    """A provider's embeddings for code that waits."""

    def __init__(self, config: Config, engine: Engine, runner: asyncio.Runner) -> None:
        self.name = embedder_name(config)
        self._model = config.routing.embedder
        self._engine = engine
        self._runner = runner

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return self._runner.run(self._engine.embed(texts, model=self._model)).vectors


@contextlib.contextmanager
def _embedder(config: Config) -> Generator[_Asked | None]:
    """The provider that tells what prompts are about; None where the bundled table does."""
    if config.routing.embedder == MODEL:
        yield None
        return
    with asyncio.Runner() as runner:
        engine = engine_of(config, declare=True)
        try:
            yield _Asked(config, engine, runner)
        finally:
            runner.run(engine.aclose())


def _models(config: Config, only: str | None) -> Mapping[str, Sequence[Target]]:
    models = {name: list(map(parse_target, given)) for name, given in targets_of(config).items()}
    if only is None:
        return models
    if only not in models:
        known = ", ".join(models) or "none"
        raise wrong("--model", f"there is no model {only!r} in the configuration; known: {known}")
    return {only: models[only]}


def _path(text: str) -> Path:
    return Path(text).expanduser()


@contextlib.contextmanager
def _progress() -> Generator[Progress]:
    """What shows how far it is: lines that move, when a person looks on."""
    if not terminal.is_terminal(sys.stderr):
        yield lambda what, done, total=None, /: None
        return
    from rich import progress as rich

    columns = (
        rich.SpinnerColumn(),
        "{task.description}",
        rich.BarColumn(),
        "{task.fields[count]}",
    )
    bar = rich.Progress(
        *columns, rich.TimeElapsedColumn(), console=terminal.console(stderr=True), transient=True
    )
    tasks: dict[Path | str, rich.TaskID] = {}

    def show(what: Path | str, done: int, total: int | None = None, /) -> None:
        count = f"{done:,} rows" if total is None else f"{done:,} of {total:,} prompts"
        if what not in tasks:
            name = what.name if isinstance(what, Path) else what
            tasks[what] = bar.add_task(terminal.visible(name), total=total, count=count)
        bar.update(tasks[what], completed=done, count=count)

    with bar:
        yield show
