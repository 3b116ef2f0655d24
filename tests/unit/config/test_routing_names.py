"""An embedder that cannot be asked is told before the first request."""

import pytest

from penstock.config.load import parse
from penstock.contract.errors import ConfigurationError
from penstock.engine.build.learning import embedder_name


@pytest.mark.parametrize(
    ("embedder", "said"),
    [
        (
            "zz",
            "line 4, routing.embedder: 'zz' is not an embedder; write 'wordllama', provider/model",
        ),
        ("zz/vectors", "line 4, routing.embedder: there is no provider 'zz'"),
        ("openai/", "line 4, routing.embedder: 'openai/' is not an embedder"),
    ],
)
def test_an_embedder_that_nobody_knows_is_refused(embedder: str, said: str) -> None:
    text = f'[models.m]\ntargets = ["openai/vectors"]\n[routing]\nembedder = "{embedder}"\n'
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("embedder", ["wordllama", "openai/vectors", "m"])
def test_the_bundled_one_a_providers_and_a_models_are_taken(embedder: str) -> None:
    text = f'[models.m]\ntargets = ["openai/vectors"]\n[routing]\nembedder = "{embedder}"\n'
    assert parse(text).routing.embedder == embedder


def test_the_vectors_of_a_model_are_named_by_its_targets() -> None:
    text = '[models.m]\ntargets = ["openai/{}"]\n[routing]\nembedder = "m"\n'
    names = [embedder_name(parse(text.format(model))) for model in ("one", "two")]
    assert names == ["openai/one", "openai/two"]
    assert embedder_name(parse('[routing]\nembedder = "openai/one"\n')) == "openai/one"
