"""The counts of both wires, as one usage."""

from penstock.contract.exchange import Usage
from penstock.providers.openai_wire.usage import InputDetails, OutputDetails, counted


def test_what_is_not_told_stays_unknown() -> None:
    assert counted(None, None, None, None) == Usage()
    assert counted(3, 5, InputDetails(), OutputDetails()) == Usage(3, 5)


def test_details_are_parts_of_the_totals() -> None:
    usage = counted(9, 5, InputDetails(4, 2), OutputDetails(3))
    assert usage == Usage(9, 5, 4, 2, 3)
