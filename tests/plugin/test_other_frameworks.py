"""Messages for users of DALI's iterators for other frameworks, and the README's example for TensorFlow."""

import importlib
import re
import types

import numpy as np
import places
import pytest

from jaxdali import fn
from jaxdali.plugin.jax import data_iterator


@pytest.mark.parametrize(
    ("name", "advice"), [("tf", "from_generator"), ("mxnet", "mxnet.nd"), ("paddle", "paddle.to_tensor")]
)
def test_import(name, advice):
    """Each form of import raises the same error, which is no ModuleNotFoundError."""
    for _ in range(2):
        with pytest.raises(
            ImportError, match=rf"plugin\.{name} of DALI is not in jaxdali: use plugin\.jax.*{re.escape(advice)}"
        ) as e:
            importlib.import_module(f"jaxdali.plugin.{name}")
        assert e.type is ImportError
    with pytest.raises(ImportError, match=re.escape(advice)):
        exec(f"from jaxdali.plugin.{name} import DALIGenericIterator")
    with pytest.raises(AttributeError, match=re.escape(advice)):
        getattr(importlib.import_module("jaxdali.plugin"), name)


class Dataset:
    """Imitates `tf.data.Dataset.from_generator`: calls the function for each pass, and checks batches by the signature."""

    def __init__(self, function, signature):
        self.function, self.signature = function, signature

    @staticmethod
    def from_generator(function, output_signature):
        return Dataset(function, output_signature)

    def prefetch(self, number):
        return self

    def __iter__(self):
        for batch in self.function():
            assert batch.keys() == self.signature.keys()
            for name, x in batch.items():
                shape, dtype = self.signature[name]
                assert isinstance(x, np.ndarray)
                assert x.dtype == np.dtype(dtype)
                assert all(n in (None, m) for n, m in zip(shape, x.shape, strict=True))
            yield batch


def test_tensorflow(monkeypatch):
    """The README's example runs with an imitation of TensorFlow. Each pass over the data set is an epoch."""
    (code,) = re.findall(
        r"<!-- test: tensorflow -->\n```python\n(.*?)```",
        (places.ROOT / "jaxdali/plugin/README.md").read_text(),
        re.DOTALL,
    )
    tensorflow = types.ModuleType("tensorflow")
    tensorflow.TensorSpec = lambda shape, dtype: (shape, dtype)  # pyright: ignore[reportAttributeAccessIssue]
    tensorflow.data = types.SimpleNamespace(Dataset=Dataset)  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(__import__("sys").modules, "tensorflow", tensorflow)

    @data_iterator(output_map=["x", "label"], auto_reset=True)
    def iterator_fn():
        numbers = fn.external_source(list(np.arange(16, dtype=np.int32).reshape(2, 8, 1)), cycle="raise")
        return fn.cast(numbers, dtype=np.float32) / 2.0, numbers

    names = {"iterator_fn": iterator_fn}
    exec(code, names)
    for _ in range(2):
        batches = list(names["dataset"])
        assert [b["label"].ravel().tolist() for b in batches] == [list(range(8)), list(range(8, 16))]
        np.testing.assert_array_equal(batches[1]["x"].ravel(), np.arange(8, 16) / 2)
