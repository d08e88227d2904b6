"""A kernel of a user's library: attributes that are members of a batch (JAXDALI_ATTRIBUTES) or parameters of SetUp,
errors that name them, and exceptions.
"""

import ctypes
import dataclasses
import shutil
import subprocess
import sys
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from kernel_calls import Case, run
from kernels import CASES

from jaxdali import _cpu, extend
from jaxdali._core import ffi as _ffi
from jaxdali._core.values import Spec

# Writes its attributes to its output. Throws if its number is 8 or 9. `throws` runs 64 tasks that throw, and returns how
# many have run when the exception arrives.
SOURCE = """
#include "ffi/common/extension.h"

#include <atomic>
#include <new>
#include <stdexcept>
#include <thread>

namespace {

using namespace jaxdali;

enum class Color : int32_t { kRed, kGreen, kBlue };

struct EchoBatch {
  Batch in, out;
  Color color;
  int axes[8], number;
  bool flag;
  float fraction;
  int64_t total;  // of a list
  JAXDALI_ATTRIBUTES(color, axes, flag, fraction);
};

Status Echo(const EchoBatch& b, int i) {
  if (b.number == 8) throw std::bad_alloc();
  if (b.number == 9) throw std::runtime_error("nine");
  auto* to = b.out.sample<int32_t>(i);
  for (int axis : b.axes) *to++ = axis;
  *to++ = static_cast<int32_t>(b.color);
  *to++ = b.flag;
  *to++ = static_cast<int32_t>(b.fraction * 1000);
  *to++ = b.number;
  *to++ = static_cast<int32_t>(b.total);
  return kOk;
}

ffi::Error SetUp(EchoBatch* b, I32 operand, int32_t number, ffi::Span<const int64_t> list) {
  if (b->color > Color::kBlue) return ffi::Error::InvalidArgument("echo: color");
  if (!HasRows(operand, *b, 2)) return ffi::Error::InvalidArgument("echo: operand");
  b->number = number;
  for (int64_t n : list) b->total += n;
  return ffi::Error::Success();
}

}  // namespace

extern "C" int throws(int pool) {
  std::atomic<int> count{0};
  const std::vector<int> order(64, 0);
  const auto task = [](void* context, int) {
    ++*static_cast<std::atomic<int>*>(context);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    throw std::bad_alloc();
  };
  try {
    RunOnPool(pool, 64, task, &count, order.data());
    return -1;
  } catch (const std::bad_alloc&) {
    return count;
  }
}

JAXDALI_DEFINE_KERNEL(echo, SetUp, Echo, LaunchEcho,
                      .Arg<jaxdali::I32>()
                          .Attr<int32_t>("number")
                          .Attr<jaxdali::ffi::Span<const int64_t>>("list"));
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The path of a user's library, which has the kernel `echo`."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler (c++)")
    folder = tmp_path_factory.mktemp("echo")
    (folder / "echo.cc").write_text(SOURCE)
    flags = subprocess.run([sys.executable, "-m", "jaxdali.extend"], capture_output=True, text=True, check=True).stdout
    command = f"c++ -std=c++20 -Wall -fPIC -shared {flags.strip()} echo.cc -o libecho.so"
    subprocess.run(command, shell=True, check=True, cwd=folder)
    extend.register_kernel("echo", folder / "libecho.so")
    return folder / "libecho.so"


@pytest.fixture
def echo(library) -> Case:
    """A call of the kernel `echo`."""
    attrs = {"color": 2, "axes": (2, 0, 1), "flag": True, "fraction": 0.25, "number": -7, "list": (1 << 20, 5, 6)}
    samples = [np.zeros((3,), np.uint8)] * 2
    return Case("echo", samples, np.dtype(np.int32), [(13,)] * 2, (np.zeros((2, 2), np.int32),), attrs)


def test_members_and_parameters_are_set(echo):
    outputs, status = run(echo)
    assert not status.any()
    for output in outputs:
        assert output.tolist() == [2, 0, 1, -1, -1, -1, -1, -1, 2, 1, 250, -7, (1 << 20) + 11]


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"color": 3}, "echo: color"),
        ({"color": 1.5}, "expected S32 but got F32"),
        ({"axes": 1}, "Wrong attribute type"),
        ({"number": True}, "expected S32 but got PRED"),
        ({"more": 1}, "expected 7 but got 8 with name.*more"),
    ],
)
def test_wrong_attributes_of_a_users_kernel(echo, attrs, message):
    with pytest.raises(Exception, match=message):
        run(dataclasses.replace(echo, attrs=echo.attrs | attrs))


@pytest.mark.parametrize(("number", "code"), [(8, _cpu.Status.OUT_OF_MEMORY), (9, _cpu.Status.INTERNAL)])
def test_exceptions_of_kernels_fail_their_samples(echo, number, code):
    _, status = run(dataclasses.replace(echo, attrs=echo.attrs | {"number": number}))
    assert status.tolist() == [code, code]


@pytest.mark.parametrize("threads", [1, 4])
def test_exceptions_of_tasks_reach_the_caller(library, threads):
    """After all tasks, which use what the caller has."""
    pool = _cpu.pool_create(threads)
    try:
        assert ctypes.CDLL(str(library)).throws(pool) == 64
    finally:
        _cpu.pool_destroy(pool)


@pytest.mark.parametrize("kernel", CASES)
def test_missing_and_unknown_attributes(kernel):
    case = next(iter(CASES[kernel](np.random.default_rng(0))))
    names = [name for name in case.attrs if name != "scratch"]  # that one is no attribute
    for name in names:
        attrs = {n: v for n, v in case.attrs.items() if n != name}
        # With the attribute "empty", there is one more.
        with pytest.raises(Exception, match=f"expected {len(names) + 1} but got {len(names)} with name"):
            run(dataclasses.replace(case, attrs=attrs))
        with pytest.raises(Exception, match=r"Attribute name mismatch: .*unknown"):
            run(dataclasses.replace(case, attrs=attrs | {"unknown": case.attrs[name]}))


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 2, 3), (0, 1, 1), (0, 1, 3), (-1, 0, 1), tuple(range(9))])
def test_permutations_name_each_axis_once(order):
    image = np.zeros((2, 2, 3), np.uint8)
    none = np.zeros((1, 0), np.float32)
    indices = [np.array([numbers], np.int32) for numbers in ((0, 0, 0), (1, 1, 1), image.shape)]
    attrs = {"permutation": order, "channel": -1}
    case = Case("window", [image], image.dtype, [image.shape], (*indices, none, none, none), attrs)
    with pytest.raises(Exception, match="the permutation must name each axis of the input once"):
        run(case)


@pytest.mark.parametrize("name", ["permutation", "channel"])
def test_attributes_in_chains_begin_with_their_stage(name):
    """A stage gets the attributes that begin with its number."""
    image = np.arange(18, dtype=np.uint8).reshape(1, 2, 3, 3)
    none = jnp.zeros((1, 0), jnp.float32)
    indices = [jnp.asarray([numbers], jnp.int32) for numbers in ((0, 0, 0), (1, 1, 1), image.shape[1:])]
    attrs: dict[str, Any] = {"permutation": (0, 1, 2), "channel": -1}
    pool = _cpu.pool_create(1)
    try:
        control = jnp.asarray([pool, 1], jnp.int32)
        spec = Spec(image.dtype, 3, image.shape[1:])
        ctx: Any = types.SimpleNamespace(B=1, control=control, times=None, spec=spec, out=(None,))
        call = _ffi.KernelCall((*indices, none, none, none), attrs)
        result, _ = _ffi.call_chain(jnp.asarray(image), [("window", ctx, call)] * 2)
        np.testing.assert_array_equal(result, image)
        short = dataclasses.replace(call, attrs={n: v for n, v in attrs.items() if n != name})
        with pytest.raises(Exception, match=f"attribute: 1_{name}"):
            np.asarray(_ffi.call_chain(jnp.asarray(image), [("window", ctx, call), ("window", ctx, short)])[0])
    finally:
        _cpu.pool_destroy(pool)
