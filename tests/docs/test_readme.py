"""What the README names exists: files, commands, make targets, extras and benchmarks."""

from __future__ import annotations

import re
import tomllib

import pytest

from penstock.cli.app import build
from tests.docs.blocks import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
LINKS = sorted({each.partition("#")[0] for each in re.findall(r"\]\(([^)]+)\)", README)})


@pytest.mark.parametrize("link", [each for each in LINKS if "://" not in each])
def test_a_link_leads_to_a_file(link: str) -> None:
    assert (ROOT / link).exists()


def test_links_to_sections_have_their_heading() -> None:
    for file, anchor in re.findall(r"\]\(([\w/.-]+\.md)#([\w-]+)\)", README):
        headings = re.findall(r"^#+ (.+)$", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {
            re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings
        }


def test_every_command_exists() -> None:
    app = build(rich=False)
    known = {each.name for each in (*app.registered_commands, *app.registered_groups)}
    named = set(re.findall(r"(?:^|[`&|] ?)penstock ([a-z]+)", README, re.MULTILINE))
    assert {"ask", "init", "serve", "usage"} <= named <= known


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE))
    assert {"run", "test"} <= named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_every_extra_exists_and_has_code_behind_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    line = re.search(r"^Extras for .*?`all`\.$", README, re.MULTILINE | re.DOTALL)
    assert line is not None
    named = set(re.findall(r"`([a-z-]+)`", line[0]))
    finished = (ROOT / "src/penstock/dashboard").exists()
    assert named == {each for each in extras if finished or each != "dashboard"}


def test_every_benchmark_exists() -> None:
    for name in re.findall(r"python (bench/[a-z_]+\.py)", README):
        assert (ROOT / name).exists()


def test_the_environment_that_is_activated_is_the_one_of_make_run() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (venv,) = re.findall(r"^VENV \??:?= *(\S+)$", makefile, re.MULTILINE)
    after_run = README[README.index("make run") :]
    assert f". {venv}/bin/activate" in after_run[: after_run.index("## ")]


def test_nothing_that_is_tried_out_limits_the_home_for_good() -> None:
    blocks = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    assert not [each for each in blocks if "budget set" in each]
