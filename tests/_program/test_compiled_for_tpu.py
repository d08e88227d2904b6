"""The real programs compiled by XLA for TPUs on a machine without one: what of a pipeline runs there, and what it
needs.

Needs the wheel libtpu in the version that jax[tpu] names; a folder on the path is enough, and no TPU. Where it is
missing the tests are skipped; with JAXDALI_REQUIRE_TPU=1 they fail.
"""

import collections
import dataclasses
import functools
import importlib.util
import math
import os
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import places
import pytest
import shardings
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import fn, types
from jaxdali._core import ffi
from jaxdali._plan.segments import Segment
from jaxdali._program import program
from jaxdali._program.sharding import Shards
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function

HAS_LIBTPU = importlib.util.find_spec("libtpu") is not None
if os.environ.get("JAXDALI_REQUIRE_TPU") == "1":
    assert HAS_LIBTPU, "JAXDALI_REQUIRE_TPU=1, but libtpu is not installed"
elif not HAS_LIBTPU:
    pytest.skip("needs libtpu", allow_module_level=True)

PHOTOS = str(places.PHOTOS)
COLLECTIVES = (
    r"\b(all-gather|all-reduce|all-to-all|collective-\w+|reduce-scatter|collective-broadcast|send|recv)(?:-start)?\("
)
WIDE = r"\b(f64|s64|u64|c128)\["
TPUS = ["v5e:2x2", "v6e:2x2"]


@functools.cache
def tpus(name: str) -> list[jax.Device]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPU_SKIP_MDS_QUERY", "1")  # no machine of Google's cloud is asked
        return topologies.get_topology_desc(name, platform="tpu").devices


@dataclasses.dataclass
class Made:
    """A program for the accelerator: its steps, how it is made, and its operands' shapes and types."""

    segment: Segment
    form: program.ProgramForm
    operands: Any

    @property
    def operators(self) -> list[str]:
        return [s.op.name for s in self.segment.steps]


def programs(define, batch_size: int, devices: int, **options) -> list[Made]:
    """Returns the accelerator's programs of an iterator. CPU devices stand in for accelerators without kernels."""
    sharding = shardings.of_batch(devices) if devices > 1 else None
    real, recorded_programs = program._jit, []

    def jit(segment, form):
        run = real(segment, form)

        def recorded(*operands):
            if segment.on_device and all(m.form is not form for m in recorded_programs):
                shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), operands)
                recorded_programs.append(Made(segment, form, shapes))
            return run(*operands)

        return recorded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_programs", collections.OrderedDict())
        patch.setattr(program, "_jit", jit)
        patch.setattr(ffi, "kernels_on", lambda device: frozenset())
        patch.setattr(Shards, "accelerator", property(lambda self: True))
        iterator = data_iterator(define, ["images", "labels"], sharding=sharding, reader_name="reader", **options)
        with iterator(batch_size=batch_size, seed=1, enable_conditionals=True) as it:
            next(it)
    return recorded_programs


def compiled(made: Made, chips: list[jax.Device]) -> Any:
    shards = Shards(len(chips), tuple(range(len(chips))), tuple((d,) for d in chips))
    form = made.form._replace(shards=shards, out_shardings=(shards.local,) * len(made.form.out_shardings))
    with jax.enable_x64(True):
        return program._jit(made.segment, form).lower(*made.operands).compile()


def read(num_shards, shard_id):
    return fn.readers.file(
        file_root=PHOTOS, num_shards=num_shards, shard_id=shard_id, name="reader", pad_last_batch=True
    )


def normalised(images, **arguments):
    return fn.crop_mirror_normalize(
        images, dtype=types.FLOAT, mean=[124.0, 116.0, 104.0], std=[58.0, 57.0, 57.0], **arguments
    )


def tutorial(num_shards=1, shard_id=0):
    jpegs, labels = read(num_shards, shard_id)
    return fn.resize(fn.decoders.image(jpegs, device="mixed"), size=(64, 64)) / 255, labels.gpu()


def train(num_shards=1, shard_id=0):
    jpegs, labels = read(num_shards, shard_id)
    images = fn.resize(fn.decoders.image_random_crop(jpegs, device="mixed"), size=(64, 64))
    return normalised(images, mirror=fn.random.coin_flip()), fn.one_hot(labels.gpu(), num_classes=1000)


def evaluation(num_shards=1, shard_id=0):
    jpegs, labels = read(num_shards, shard_id)
    images = fn.resize(fn.decoders.image(jpegs, device="mixed"), resize_shorter=72)
    return normalised(images, crop=(64, 64)), labels.gpu()


def conditional(num_shards=1, shard_id=0):
    jpegs, labels = read(num_shards, shard_id)
    images = fn.resize(fn.decoders.image(jpegs, device="mixed"), size=(64, 64))
    if fn.random.coin_flip(dtype=types.BOOL):
        images = fn.rotate(images, angle=10.0, keep_size=True)
    return fn.cast(images, dtype=types.FLOAT16) * 2.0, labels.gpu()


def function(num_shards=1, shard_id=0):
    jpegs, labels = read(num_shards, shard_id)
    images = fn.resize(fn.decoders.image(jpegs, device="mixed"), size=(64, 64))
    centred = jax_function(lambda x: x.astype(jnp.float32) - 128.0)(images)
    return jax_function(lambda x: jnp.transpose(x, (0, 3, 1, 2)))(centred * np.float32(1 / 64)), labels.gpu()


def ragged(num_shards=1, shard_id=0):
    """Images of all sizes in one buffer. The host pads the results."""
    jpegs, labels = read(num_shards, shard_id)
    return fn.decoders.image(jpegs, device="mixed") * np.float32(0.5) + np.float32(1), labels.gpu()


ON_TPU = {  # operators, in one program
    tutorial: ["arithmetic", "copy"],
    train: ["crop_mirror_normalize", "copy", "one_hot"],
    evaluation: ["crop_mirror_normalize", "copy"],
    conditional: ["cast", "arithmetic", "copy"],
    function: ["jax_function", "arithmetic", "jax_function", "copy"],
    ragged: ["arithmetic", "arithmetic", "copy"],
}


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("define", ON_TPU)
def test_programs(define, devices):
    (recorded_program,) = programs(define, 8, devices, ragged={"images": (2048, 2048)} if define is ragged else None)
    assert recorded_program.operators == ON_TPU[define]
    for name in TPUS:
        c = compiled(recorded_program, tpus(name)[:devices])
        text, memory = c.as_text(), c.memory_analysis()
        assert not re.search(r"custom_call_target=|\b(infeed|outfeed|host-\w+)\(", text), (
            "it calls the host, or another library"
        )
        assert not re.search(WIDE, text)
        assert not re.search(COLLECTIVES, text)
        assert memory.temp_size_in_bytes <= memory.argument_size_in_bytes + memory.output_size_in_bytes


def test_a_train_step():
    """Batches of a pipeline on a mesh of 2x2 chips, with two named axes: the only communication is that of gradients
    and loss.
    """
    nnx, optax = pytest.importorskip("flax.nnx"), pytest.importorskip("optax")

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.conv, self.dense = nnx.Conv(3, 16, (3, 3), strides=2, rngs=rngs), nnx.Linear(16, 1000, rngs=rngs)

        def __call__(self, x):
            return self.dense(nnx.relu(self.conv(x)).mean(axis=(1, 2)))

    graph, parameters = nnx.split(Model(nnx.Rngs(0)))
    parameters = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), parameters)
    optimizer = optax.sgd(1e-3, momentum=0.9)

    def step(parameters, state, images, labels):
        def loss(parameters):
            logits = nnx.merge(graph, parameters)(jnp.transpose(images, (0, 2, 3, 1)))
            return optax.softmax_cross_entropy(logits, labels).mean()

        value, gradients = jax.value_and_grad(loss)(parameters)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    number = sum(math.prod(a.shape) for a in jax.tree.leaves(parameters))
    for name in TPUS:
        mesh = Mesh(np.array(tpus(name)).reshape(2, 2), ("data", "more"))
        replicated, by_sample = (
            NamedSharding(mesh, PartitionSpec()),
            NamedSharding(mesh, PartitionSpec(("data", "more"))),
        )
        state = jax.eval_shape(optimizer.init, parameters)
        images, labels = jax.ShapeDtypeStruct((8, 3, 64, 64), np.float32), jax.ShapeDtypeStruct((8, 1000), np.float32)
        jitted = jax.jit(
            step,
            in_shardings=(replicated, replicated, by_sample, by_sample),
            out_shardings=(replicated, replicated, replicated),
        )
        text = jitted.lower(parameters, state, images, labels).compile().as_text()
        assert not re.search(WIDE, text)
        assert not re.search(r"\b(infeed|outfeed|host-\w+)\(", text)
        collectives = re.findall(r"= (\S.*?) " + COLLECTIVES, text)
        assert {kind for _, kind in collectives} == {"all-reduce"}
        reduced = [
            math.prod(int(n) for n in dims.split(",") if n)
            for result, _ in collectives
            for dims in re.findall(r"f32\[([\d,]*)\]", result)
        ]
        assert sum(reduced) == number + 1
