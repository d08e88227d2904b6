"""The adapter in the guide "Keras on JAX": which samples `fit` and `evaluate` get."""

import os
import re

import jax
import numpy as np
import places
import pytest

from jaxdali import fn, types
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator

os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "jax":
    pytest.skip("Keras has another backend", allow_module_level=True)

SAMPLES, BATCH = 10, 4


@pytest.fixture
def epochs():
    """The guide's class."""
    guide = (places.EXAMPLES / "site" / "guides" / "keras.md").read_text()
    (code,) = re.findall(r"^class Epochs.*?(?=^```)", guide, re.DOTALL | re.MULTILINE)
    namespace = {"keras": keras}
    exec(code, namespace)
    return namespace["Epochs"]


@data_iterator(
    output_map=["number"],
    reader_name="numbers",
    last_batch_policy=LastBatchPolicy.PARTIAL,
    mask_name="valid",
    repeat=True,
)
def make_iterator(shuffle):
    numbers = fn.readers.source([np.int32(i) for i in range(SAMPLES)], random_shuffle=shuffle, name="numbers")
    return fn.cast(numbers, dtype=types.FLOAT)


class Recorder(keras.Model):
    """Has the valid numbers of the batches in its steps."""

    def __init__(self):
        super().__init__()
        self.trained, self.tested = [], []
        self.layer = keras.layers.Dense(1)
        self.compile("sgd", "mse")

    def call(self, x):
        return self.layer(x[:, None])

    def train_step(self, state, data):
        jax.debug.callback(lambda *batch: record(self.trained, *batch), *data, ordered=True)
        return super().train_step(state, data)

    def test_step(self, state, data):
        jax.debug.callback(lambda *batch: record(self.tested, *batch), *data, ordered=True)
        return super().test_step(state, data)


def record(batches, number, _, valid):
    batches.append(np.asarray(number)[np.asarray(valid)].astype(int).tolist())


def joined(batches):
    return [number for batch in batches for number in batch]


def make_data(epochs, shuffle):
    return epochs(make_iterator(shuffle, batch_size=BATCH, seed=3), "number", "number", "valid")


def expected_epochs(count):
    """The shuffled epochs, as a loop over an iterator has them."""
    iterator = make_iterator(True, batch_size=BATCH, seed=3)
    result = []
    for _ in range(count):
        batches = [next(iterator) for _ in range(len(iterator))]
        result.append([n for b in batches for n in np.asarray(b["number"])[np.asarray(b["valid"])].astype(int)])
    return result


def test_each_epoch_has_all_samples(epochs):
    """Keras looks at a batch before the first epoch, and validates after each: neither takes a sample away."""
    model = Recorder()
    data, validation = make_data(epochs, True), make_data(epochs, False)
    model.fit(data, validation_data=validation, epochs=3, shuffle=False, verbose=0)
    model.evaluate(validation, verbose=0)
    jax.effects_barrier()
    first, second, third = (joined(model.trained[i : i + 3]) for i in (0, 3, 6))
    assert [first, second, third] == expected_epochs(3)
    assert len({tuple(epoch) for epoch in (first, second, third)}) == 3
    assert joined(model.tested) == [*range(SAMPLES)] * 4


def test_short_epochs_go_on(epochs):
    model = Recorder()
    model.fit(make_data(epochs, True), epochs=3, steps_per_epoch=1, shuffle=False, verbose=0)
    jax.effects_barrier()
    assert joined(model.trained) == expected_epochs(1)[0]


def test_interrupted_epoch_begins_anew(epochs):
    model, data = Recorder(), make_data(epochs, True)
    stop = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: 1 / (1 - step))
    with pytest.raises(ZeroDivisionError):
        model.fit(data, callbacks=[stop], shuffle=False, verbose=0)
    model.fit(data, shuffle=False, verbose=0)
    jax.effects_barrier()
    assert joined(model.trained[-3:]) == expected_epochs(1)[0]


def test_order_of_keras_is_refused(epochs):
    data = make_data(epochs, True)
    with pytest.raises(ValueError, match="pass shuffle=False to fit"):
        data[2]
