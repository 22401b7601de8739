"""Sentence embeddings: every text alone, by the declared model."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poisonproof.cli._app import run
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.features import SentenceEmbedding, folder_digest, learns_nothing


class PaddingModel:
    """A model whose vectors depend on the longest text it sees together, as padded ones do."""

    def encode(self, texts: list[str]) -> NDArray[np.float64]:
        longest = max(map(len, texts))
        return np.array([[len(text), longest] for text in texts], dtype=float)


def test_a_long_text_does_not_reach_its_neighbours() -> None:
    embedding = SentenceEmbedding(PaddingModel(), n_features=2)
    alone = embedding.transform(["short"])
    together = embedding.transform(["short", "a very much longer text"])
    assert np.array_equal(together[:1], alone)
    assert together.dtype == np.float32
    assert learns_nothing(embedding)


def test_vectors_of_another_length_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="vectors of length 2, but 3"):
        SentenceEmbedding(PaddingModel(), n_features=3).transform(["a"])


def test_another_model_in_the_folder_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"one")
    digest = folder_digest(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"two")
    assert folder_digest(tmp_path) != digest
    with pytest.raises(GuaranteeError, match="not the one that was declared"):
        SentenceEmbedding(str(tmp_path), n_features=2, digest=digest).transform(["a"])


def test_a_folder_with_links_or_none_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no model folder"):
        folder_digest(tmp_path / "none")
    (tmp_path / "weights.bin").symlink_to("/etc/hostname")
    with pytest.raises(InvalidInputError, match="is a link"):
        folder_digest(tmp_path)


def test_a_classifier_takes_texts_through_a_model_of_the_user() -> None:
    """The code of docs/texts.md, as it stands there."""
    page = (Path(__file__).parents[2] / "docs" / "texts.md").read_text()
    codes = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    (code,) = (code for code in codes if "SentenceEmbedding" in code)
    names: dict[str, Any] = {"__name__": "page"}
    exec(code, names)
    assert names["clf"].certify(["free prize"]).radius[0] > 0


class StandIn:
    """What sentence_transformers.SentenceTransformer looks like from here."""

    def __init__(self, folder: str, **options: Any) -> None:
        assert options == {"device": "cpu", "local_files_only": True, "trust_remote_code": False}
        self.words = (Path(folder) / "words.txt").read_text().split()

    def encode(self, texts: list[str]) -> NDArray[np.float64]:
        return np.array([[text.count(word) for word in self.words] for text in texts], dtype=float)


def test_a_model_in_a_folder_goes_from_schema_to_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = StandIn  # type: ignore[attr-defined]
    module.__version__ = "0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    monkeypatch.setattr("poisonproof.data.schema.metadata.version", lambda name: "0")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    Path("model", "words.txt").write_text("free money lunch report 1 2 3 4 5 6 7 8 9")
    mails = [("free money", "spam"), ("lunch and a report", "ham")] * 100
    lines = [f"{text} {i},{kind}" for i, (text, kind) in enumerate(mails)]
    Path("mails.csv").write_text("body,kind\n" + "\n".join(lines) + "\n")
    schema = ["schema", "mails.csv", "--label", "kind", "--embedding", "model", "--out", "s.json"]
    assert run(schema) == 0
    assert "13 numbers by model" in " ".join(capsys.readouterr().out.split())
    assert run(["schema", "s.json", "--freeze"]) == 0
    train = ["train", "mails.csv", "--schema", "s.json", "-k", "8", "--model", "ridge"]
    assert run([*train, "--out", "m"]) == 0
    Path("new.csv").write_text("body\nfree free money\na report at lunch\n")
    assert run(["predict", "m", "new.csv", "--out", "p.csv"]) == 0
    predicted = Path("p.csv").read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in predicted] == ["spam", "ham"]
    Path("model", "words.txt").write_text("other words")
    capsys.readouterr()
    assert run(["predict", "m", "new.csv"]) == 2
    assert "not the one that was declared" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")  # other people's deprecations
def test_a_real_model_on_disk_embeds_texts(tmp_path: Path) -> None:
    """Runs where sentence-transformers is installed; the model is made here, with two words."""
    models = pytest.importorskip("sentence_transformers.models")
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nfree\nmeet")
    config = transformers.BertConfig(
        vocab_size=6, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    bert = tmp_path / "bert"
    transformers.BertModel(config).save_pretrained(bert)
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(bert)
    word = models.Transformer(str(bert))
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(
        modules=[word, models.Pooling(word.get_word_embedding_dimension())], device="cpu"
    )
    folder = tmp_path / "model"
    model.save(str(folder))
    size = SentenceEmbedding.measure(str(folder))
    assert size == 16
    embedding = SentenceEmbedding(str(folder), n_features=size, digest=folder_digest(folder))
    vectors = embedding.transform(["free free", "meet", "free meet free meet free"])
    assert np.array_equal(vectors[1:2], embedding.transform(["meet"]))
    assert not np.array_equal(vectors[0], vectors[1])
