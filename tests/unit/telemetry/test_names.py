"""Labels stay within their limit, whatever callers write."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.telemetry.label_guard import OTHER, Names


def test_only_known_and_proven_names_are_labels() -> None:
    names = Names(["assistant"], limit=2)
    assert names.label("assistant", proven=False) == "assistant"
    assert names.label("nonsense", proven=False) == OTHER
    assert names.label("gpt-6", proven=True) == "gpt-6"
    assert names.label("gpt-6", proven=False) == "gpt-6"
    assert names.label("claude", proven=True) == "claude"
    assert names.label("gemini", proven=True) == OTHER


@given(
    st.sets(st.text(max_size=3), max_size=3),
    st.integers(0, 5),
    st.lists(st.tuples(st.text(max_size=3), st.booleans())),
)
def test_there_are_never_more_labels_than_the_limit_allows(
    known: set[str], limit: int, asked: list[tuple[str, bool]]
) -> None:
    names = Names(known, limit)
    labels = {names.label(name, proven=proven) for name, proven in asked}
    assert len(labels - known - {OTHER}) <= limit
    assert labels - known - {OTHER} <= {name for name, proven in asked if proven}
    for name in known:
        assert names.label(name, proven=False) == name
