"""The programs of an accelerator, and the bytes that it gets, for batches of many sizes."""

import io

import jax
import numpy as np
import pytest
from benchmarks.photos import draw_size
from PIL import Image

from jaxdali import fn
from jaxdali._batch.launch import Launcher
from jaxdali._core import ffi as _ffi
from jaxdali._program import program
from jaxdali._program.sharding import Shards
from jaxdali.plugin.jax import data_iterator


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """200 files of the sizes that ImageNet has."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    texture = np.kron(rng.integers(60, 160, (60, 60, 3)), np.ones((40, 40, 1))) + rng.integers(0, 24, (2400, 2400, 1))
    whole = Image.fromarray(texture.astype(np.uint8))
    for i in range(200):
        width, height = draw_size(rng)
        file = io.BytesIO()
        whole.crop((0, 0, width, height)).save(file, "JPEG", quality=int(rng.integers(87, 96)))
        (folder / f"{i}.jpg").write_bytes(file.getvalue())
    return sorted(map(str, folder.iterdir()))


def whole(jpegs):
    return fn.decoders.image(jpegs, device="mixed")


def crops(jpegs):
    return fn.decoders.image_random_crop(jpegs, device="mixed")


def rotated(jpegs):
    return fn.rotate(fn.decoders.image(jpegs, device="mixed"), angle=fn.random.uniform(range=(-10.0, 10.0)))


@pytest.mark.parametrize("images", [whole, crops, rotated])
def test_few_programs_for_batches_of_photos(monkeypatch, photos, images):
    """A GPU gets 1,000 batches of 8 photos. Nothing is compiled or run: only the host's part is real."""
    programs, transferred, needed = set(), 0, 0
    memory = []  # for each batch, available scratch divided by needed scratch

    def dispatch(self, number, segment, phase, operands, batch):
        nonlocal transferred, needed
        programs.add((number, operands.key))
        (files,) = (batch.values[r].data for r in segment.operands if r in phase.ragged)
        transferred += sum(b.nbytes for b in operands.buffers)
        needed += files.used
        steps = operands.layout().steps
        memory.append(sum(s.scratch for s in steps) / sum(batch.setups[step.id].scratch for step in segment.steps))
        for ref in segment.exports:
            spec = segment.plan.spec(ref)
            batch.results[ref] = jax.device_put(np.zeros((8, *spec.shape), spec.dtype))
        return np.zeros((8, len(segment.native)), np.int32), None

    monkeypatch.setattr(program, "_capacities", {})
    monkeypatch.setattr(Launcher, "_dispatch", dispatch)
    monkeypatch.setattr(Shards, "accelerator", property(lambda self: True))
    monkeypatch.setattr(_ffi, "kernels_on", lambda device: frozenset(_ffi._kernels["cpu"]))

    def define(num_shards=1, shard_id=0):
        jpegs, _ = fn.readers.file(
            files=photos, random_shuffle=True, name="reader", num_shards=num_shards, shard_id=shard_id
        )
        return fn.resize(images(jpegs), size=(32, 32))

    with data_iterator(define, ["images"], reader_name="reader")(batch_size=8, seed=1) as iterator:
        for _ in range(40):
            assert sum(1 for _ in iterator) == 25
    assert len(memory) >= 1000
    assert len(programs) <= 12, "few programs must serve batches of all sizes"
    assert transferred <= 1.5 * needed, "a GPU must not get much more than the files of a batch"
    assert np.mean(memory) <= 2, "working memory must not be much larger than needed"
