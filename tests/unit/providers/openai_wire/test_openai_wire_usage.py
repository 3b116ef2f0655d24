"""The counts of both wires, as one usage."""

from penstock.contract.exchange import Usage
from penstock.providers.openai_wire.usage import InputDetails, OutputDetails, counted


def test_what_is_not_told_stays_unknown() -> None:
    assert counted(None, None, None, None) == Usage()
    assert counted(3, 5, InputDetails(), OutputDetails()) == Usage(3, 5)


def test_details_are_parts_of_the_totals() -> None:
    usage = counted(9, 5, InputDetails(4, 2), OutputDetails(3))
    assert usage == Usage(9, 5, 4, 2, 3)


def test_sound_is_told_by_its_tokens_or_its_length() -> None:
    assert counted(9, 5, InputDetails(audio_tokens=7), None) == Usage(9, 5, input_audio_tokens=7)
    assert counted(9, 5, InputDetails(audio_tokens=0), None) == Usage(9, 5)
    assert counted(9, 5, None, None, 12) == Usage(9, 5, audio_seconds=12.0)
    assert counted(9, 5, None, None, {}) == Usage(9, 5)
