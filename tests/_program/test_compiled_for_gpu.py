"""The real programs compiled by XLA for an H100 on a machine without one: what it would launch, copy and allocate.

Needs the wheels jax-cuda13-plugin and jax-cuda13-pjrt of jax's version (no driver, no other library of CUDA's), and the
CUDA module or the module that JAXDALI_EMULATED builds: its bindings are those of the CUDA kernels. Where something is
missing the tests are skipped; with JAXDALI_REQUIRE_AOT=1 they fail.
"""

import collections
import dataclasses
import functools
import importlib
import importlib.util
import math
import os
import pathlib
import re
import types
from typing import Any

import emulated
import jax
import jax.numpy as jnp
import kernel_calls
import kernels
import numpy as np
import places
import pytest
import shardings
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from PIL import Image

import jaxdali.dynamic as jd
from jaxdali import fn
from jaxdali._core import ffi
from jaxdali._core.context import Out
from jaxdali._plan.segments import Segment
from jaxdali._program import program
from jaxdali._program.sharding import Shards
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function

try:
    HAS_PLUGIN = importlib.util.find_spec("jax_plugins.xla_cuda13") is not None
except ModuleNotFoundError:
    HAS_PLUGIN = False
if os.environ.get("JAXDALI_REQUIRE_AOT") == "1":
    assert HAS_PLUGIN, "JAXDALI_REQUIRE_AOT=1, but jax-cuda13-plugin and jax-cuda13-pjrt are not installed"
elif not HAS_PLUGIN:
    pytest.skip("needs jax-cuda13-plugin and jax-cuda13-pjrt", allow_module_level=True)
TARGETS = ffi.CUDA_KERNELS or emulated.required()

PHOTOS = sorted(places.PHOTOS.glob("*/*.jpg"))
# Without the versions XLA lets no native call into a command buffer.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 84978434048
  shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  driver_version: "13.0.0" runtime_version: "13.0.0" compile_time_toolkit_version: "13.0.0"
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 12 } device_description_str: "NVIDIA H100 80GB HBM3" runtime_version { major: 13 }
"""


@functools.cache
def gpus(number: int) -> list[jax.Device]:
    if not ffi.CUDA_KERNELS:  # where the CUDA module is built, its handlers are registered already
        for name, handler in importlib.import_module("jaxdali._emulated").targets().items():
            jax.ffi.register_ffi_target(name, handler, platform="CUDA")
    return topologies.get_topology_desc("h100", "cuda", target_config=H100, topology=f"1x1x{number}").devices


@dataclasses.dataclass
class Compiled:
    """The program that XLA compiled.

    Attributes:
      thunks: what the GPU is told to do, in order; indented: as part of a command buffer.
      text: the optimised program.
      memory: what it needs.
    """

    thunks: list[str]
    text: str
    memory: Any


class Recorded(Exception):
    """A program was about to be made."""


def record(define, batch_size: int, devices: int) -> tuple[Segment, program.ProgramForm, Any]:
    """Returns what an iterator's first program is compiled of, with CPU devices that emulate GPUs, and the shapes and
    types of its operands.
    """
    sharding = shardings.of_batch(devices) if devices > 1 else None
    recorded = []

    def jit(segment, form):
        def run(*operands):
            shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), operands)
            recorded.append((segment, form, shapes))
            raise Recorded

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_programs", collections.OrderedDict())
        patch.setattr(program, "_jit", jit)
        patch.setattr(ffi, "kernels_on", lambda device: frozenset(TARGETS))
        patch.setattr(Shards, "accelerator", property(lambda self: True))
        iterator = data_iterator(define, ["images", "labels"], sharding=sharding, reader_name="reader")
        with pytest.raises(Recorded), iterator(batch_size=batch_size, seed=1) as it:
            next(it)
    return recorded[0]


def compiled_for_h100(define, batch_size: int, devices: int, folder: pathlib.Path) -> Compiled:
    segment, form, operands = record(define, batch_size, devices)
    shards = Shards(devices, tuple(range(devices)), tuple((d,) for d in gpus(devices)))
    form = form._replace(shards=shards, out_shardings=(shards.local,) * len(form.out_shardings))
    with jax.enable_x64(True):
        compiled = program._jit(segment, form).lower(*operands).compile(compiler_options={"xla_dump_to": str(folder)})
    thunks = sorted(folder.glob("*thunk_sequence*.txt"))[-1]  # after XLA's passes over them, where any did something
    return Compiled(thunks.read_text().splitlines(), compiled.as_text() or "", compiled.memory_analysis())


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> list[str]:
    """Files as ImageNet's are on average: 500x375, 100 kB."""
    folder, files = tmp_path_factory.mktemp("photos"), []
    for path in PHOTOS:
        files.append(str(folder / path.name))
        Image.open(path).convert("RGB").resize((500, 375), Image.Resampling.BICUBIC).save(files[-1], quality=97)
    return files * 16


def read(files, num_shards, shard_id):
    return fn.readers.file(files=files, num_shards=num_shards, shard_id=shard_id, name="reader")


def tutorial(files, num_shards=1, shard_id=0):
    jpegs, labels = read(files, num_shards, shard_id)
    return fn.resize(fn.decoders.image(jpegs, device="mixed"), resize_x=256, resize_y=256), labels.gpu()


def random_crops(files, num_shards=1, shard_id=0):
    jpegs, labels = read(files, num_shards, shard_id)
    return fn.resize(fn.decoders.image_random_crop(jpegs, device="mixed"), size=(224, 224)), labels.gpu()


def train(files, num_shards=1, shard_id=0):
    images, labels = random_crops(files, num_shards, shard_id)
    return fn.crop_mirror_normalize(
        images, mirror=fn.random.coin_flip(), mean=[124.0, 116.0, 104.0], std=[58.0, 57.0, 57.0]
    ), labels


def rotated(files, num_shards=1, shard_id=0):
    jpegs, labels = read(files, num_shards, shard_id)
    images = fn.rotate(
        fn.decoders.image(jpegs, device="mixed"), angle=fn.random.uniform(range=(-15.0, 15.0)), fill_value=0
    )
    return fn.resize(images, size=(224, 224)), labels.gpu()


def normalised(files, num_shards=1, shard_id=0):
    """Two user functions, and arithmetic between them."""
    images, labels = random_crops(files, num_shards, shard_id)
    centred = jax_function(lambda x: x.astype(jnp.float32) - 128.0)(images)
    return jax_function(lambda x: jnp.transpose(x, (0, 3, 1, 2)))(centred * np.float32(1 / 64)), labels


def cropped(files, num_shards=1, shard_id=0):
    jpegs, labels = read(files, num_shards, shard_id)
    return fn.crop(
        fn.decoders.image(jpegs, device="mixed"), crop=(224, 224), crop_pos_x=fn.random.uniform(range=(0.0, 1.0))
    ), labels.gpu()


def cropped_and_normalised(files, num_shards=1, shard_id=0):
    jpegs, labels = read(files, num_shards, shard_id)
    images = fn.decoders.image(jpegs, device="mixed")
    return fn.crop_mirror_normalize(
        images, crop=(224, 224), mirror=fn.random.coin_flip(), std=[58.0, 57.0, 57.0]
    ), labels.gpu()


LEAST_COMMANDS = 5  # of which XLA makes a CUDA graph (xla_gpu_graph_min_graph_size); fewer are launched one by one
# Calls of ours.
NATIVE = {tutorial: 2, random_crops: 2, train: 2, rotated: 3, normalised: 2, cropped: 1, cropped_and_normalised: 2}


def copies(text: str) -> list[int]:
    """Bytes of each copy in a program."""
    widths = {"pred": 1, "u8": 1, "s8": 1, "bf16": 2, "f16": 2, "u16": 2, "s16": 2, "f64": 8, "s64": 8, "u64": 8}
    results = re.findall(r"= (\w+)\[([\d,]*)\]\S* copy\(", text)
    return [widths.get(dtype, 4) * math.prod(int(n) for n in shape.split(",") if n) for dtype, shape in results]


def without_elements(text: str) -> list[str]:
    """The operands of custom calls that have no elements. XLA keeps such an array as a constant of size 0."""
    shapes = dict(re.findall(r"(%[\w.-]+) = \w+\[([\d,]*)\]", text))
    operands = [
        name for arguments in re.findall(r"custom-call\(([^)]*)\)", text) for name in re.findall(r"%[\w.-]+", arguments)
    ]
    assert len(operands) >= 6
    return [name for name in operands if "0" in shapes[name].split(",")]


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("kernel", kernels.CASES)
def test_kernels_get_no_operand_without_elements(monkeypatch, kernel, dense):
    texts: list[Any] = []

    def call(kernel, ctx, image, spec, out, *params, real=ffi.call, **attrs):
        capacity, layout = (0, None) if out is None else (out.capacity, (out.offsets, out.shapes))

        def program(image, control, layout, params):
            placement = None if layout is None else Out(capacity, *layout)
            return real(
                kernel,
                types.SimpleNamespace(B=ctx.B, control=control, times=None),
                image,
                spec,
                placement,
                *params,
                **attrs,
            )

        operands = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=SingleDeviceSharding(gpus(1)[0])),
            (image, ctx.control, layout, params),
        )
        texts.append(jax.jit(program).lower(*operands).compile().as_text())
        raise Recorded

    monkeypatch.setattr(ffi, "call", call)
    with pytest.raises(Recorded):
        kernel_calls.run(next(iter(kernels.CASES[kernel](np.random.default_rng(0)))), dense=dense)
    assert f'custom_call_target="jaxdali_{kernel}"' in texts[0]
    assert without_elements(texts[0]) == []


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("define", NATIVE)
def test_launched_kernels(define, devices, photos, tmp_path):
    c = compiled_for_h100(functools.partial(define, photos), 64, devices, tmp_path)
    assert len(re.findall(r'custom_call_target="jaxdali_\w+"', c.text)) == NATIVE[define]
    # No callback to the host, no other library.
    assert len(re.findall(r"custom_call_target=", c.text)) == NATIVE[define]
    commands = [t for t in c.thunks if not t.startswith(" ")]
    if define is cropped and 1 < len(commands) < LEAST_COMMANDS:  # jax 0.11 leaves one call between two copies
        assert "kCommandBuffer" not in "".join(c.thunks)
    else:
        assert "kCommandBuffer" in commands[0], f"no CUDA graph: {c.thunks}"
        assert len(commands) == 1, f"not all of the program is one CUDA graph: {c.thunks}"
    assert not re.search(
        r"all-gather|all-reduce|all-to-all|collective|reduce-scatter|\b(send|recv|infeed|outfeed)\(", c.text
    )
    assert max([0, *copies(c.text)]) <= c.memory.output_size_in_bytes
    assert without_elements(c.text) == []
    # Operands are cut out of the argument buffer by small kernels, and the status is put together by one.
    fusions = [t for t in c.thunks if "fusion" in t and not re.search("slice|concatenate", t, re.IGNORECASE)]
    assert len(fusions) == (define is normalised), (
        f"arithmetic after the last native call must be one kernel: {c.thunks}"
    )


@pytest.mark.parametrize("devices", [1, 2])
def test_functions_of_values(monkeypatch, devices):
    """Functions are traced here, where JAX has CPUs, and lowered for GPUs. Each device computes its part, and none
    calls anything that only the CPU has.
    """
    monkeypatch.setattr(jax, "device_count", lambda: 1)  # how many there are here does not count
    mesh = Mesh(np.array(gpus(devices)), ("batch",))
    x = jax.ShapeDtypeStruct((8, 20, 30, 3), np.uint8, sharding=NamedSharding(mesh, PartitionSpec("batch")))
    function = jax.jit(
        lambda x: jd.crop_mirror_normalize(jd.resize(x, size=(10, 12)), mean=[1.0, 2, 3], std=[4.0, 5, 6]).jax()
    )
    text = function.lower(x).compile().as_text()
    assert sorted(re.findall(r'custom_call_target="(\w+)"', text)) == ["jaxdali_resize", "jaxdali_window"]
    assert f"[{8 // devices},10,12,3]" in text
    assert "all-gather" not in text


@pytest.mark.parametrize(
    ("define", "limit"), [(tutorial, 360), (random_crops, 210), (rotated, 415), (normalised, 125), (cropped, 95)]
)
def test_working_memory(define, limit, photos, tmp_path):
    """Working memory for 256 photos has a limit in MB. Of the tutorial's 336 MB, 144 are pixels, 139 the decoder's, and
    the rest is room for larger batches.
    """
    c = compiled_for_h100(functools.partial(define, photos), 256, 1, tmp_path)
    assert c.memory.temp_size_in_bytes <= limit * 1_000_000
