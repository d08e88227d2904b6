"""The features of TensorFlow examples as Python objects."""

import random

import containers
import pytest

from jaxdali._data.examples import features_of

FEATURES = {
    "text": [b"caption", b"\xff\x00"],
    "name": ["größe".encode()],
    "numbers": [3, -1, 2**62],
    "one": [7],
    "floats": [0.5, -2.0],
}
EXPECTED = {
    "text": ["caption", b"\xff\x00"],
    "name": "größe",
    "numbers": [3, -1, 2**62],
    "one": 7,
    "floats": [0.5, -2.0],
}


@pytest.mark.parametrize("packed", [True, False])
def test_features(packed):
    data = containers.example(FEATURES, packed)
    assert features_of(data, FEATURES) == EXPECTED
    assert features_of(data, ["one", "lacking"]) == {"one": 7}


def test_damaged_examples():
    """Mutated messages are read, or raise ValueError."""
    rng = random.Random(0)
    files = [containers.example(FEATURES, packed) for packed in (True, False)]
    damaged = 0
    for _ in range(8000):
        data = bytearray(rng.choice(files))
        for _ in range(rng.choice((1, 1, 2, 8))):
            kind, offset = rng.randrange(4), rng.randrange(len(data) or 1)
            data = data or bytearray(1)
            if kind == 0:
                data[offset] = rng.randrange(256)
            elif kind == 1:
                del data[offset : offset + rng.randrange(1, 9)]
            elif kind == 2:
                data[offset:offset] = rng.randbytes(rng.randrange(1, 9))
            else:
                data = data[: offset + 1]
        try:
            features = features_of(bytes(data), FEATURES)
        except ValueError:
            damaged += 1
        else:
            assert features.keys() <= FEATURES.keys()
    assert 1000 < damaged < 7900, "some mutations are harmless, and some are not"
