"""Every behaviour on every provider: `pytest tests/conformance -k "text and openai-chat"`."""

from __future__ import annotations

import pytest

from penstock import UnsupportedOption
from penstock.providers.registry import BUILT_IN
from tests.conformance.behaviour import Behaviour
from tests.conformance.behaviours import BEHAVIOURS, SECTIONS
from tests.conformance.subjects import SUBJECTS, NotApplicable, Subject

CELLS = [
    pytest.param(behaviour, subject, id=f"{behaviour.id}[{subject.name}]")
    for behaviour in BEHAVIOURS.values()
    for subject in SUBJECTS
]


@pytest.mark.parametrize(("behaviour", "subject"), CELLS)
async def test_cell(behaviour: Behaviour, subject: Subject) -> None:
    absent = subject.not_applicable.get(behaviour.id)
    if absent is None:
        check = behaviour.live if subject.live else behaviour.check
        assert check is not None, f"{subject.name} gives no reason for lacking {behaviour.id}"
        async with subject.open(behaviour) as case:
            await check(case)
    elif absent.refuses:
        await _refused(behaviour, subject, absent)


async def _refused(behaviour: Behaviour, subject: Subject, absent: NotApplicable) -> None:
    """What the API does not have is refused by name, before anything is sent."""
    assert behaviour.asking is not None
    async with subject.open(behaviour) as case:
        with pytest.raises(UnsupportedOption) as caught:
            await behaviour.asking(case)
        assert caught.value.options == absent.refuses
        assert (caught.value.provider, caught.value.model) == (case.provider, case.model)
        assert case.scripted is None or not case.scripted.seen


def test_behaviours_have_names_of_their_own() -> None:
    assert len(BEHAVIOURS) == sum(map(len, SECTIONS.values()))
    titles = {behaviour.title for behaviour in BEHAVIOURS.values()}
    assert len(titles) == len(BEHAVIOURS)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_reasons_belong_to_behaviours_and_are_sentences(subject: Subject) -> None:
    assert subject.not_applicable.keys() <= BEHAVIOURS.keys()
    for absent in subject.not_applicable.values():
        assert absent.reason.endswith(".")
        assert " " in absent.reason


def test_every_dialect_of_the_registry_is_a_subject() -> None:
    """A new dialect cannot be forgotten here."""
    needed = {kind.dialect or name for name, kind in BUILT_IN.items()}
    assert {BUILT_IN[subject.name].dialect or subject.name for subject in SUBJECTS} == needed
