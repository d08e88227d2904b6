"""Many threads of Python at once: each gets what it gets alone. Most of this tells more where the interpreter has no
lock.
"""

import os
import subprocess
import sys
import sysconfig
import threading
import time
from typing import Any

import jax
import numpy as np
import places
import pytest
from photos_of_values import FILES, images

import jaxdali.dynamic as jd
from jaxdali import fn, pipeline_def
from jaxdali._batch.executor import Executor
from jaxdali._pipeline import conditionals
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function


def at_once(work, arguments):
    """The results of calls that begin together, each in a thread of its own; exceptions count as results."""
    start = threading.Barrier(len(arguments))
    results: list[Any] = [None] * len(arguments)

    def run(i):
        start.wait()
        try:
            results[i] = work(arguments[i])
        except Exception as e:
            results[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(arguments))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python is not free-threaded")
def test_importing_does_not_bring_the_lock_back():
    """In a process of its own, since packages that tests import may bring it back."""
    program = (
        "import sys, pkgutil, importlib, jaxdali\n"
        "from jaxdali import dynamic, fn, ops\n"
        "import jaxdali.auto_aug, jaxdali.experimental.dynamic, jaxdali.pack, jaxdali.plugin.jax.clu\n"
        "for module in (fn, dynamic, ops):\n"
        "    for name in dir(module):\n"
        "        getattr(module, name)\n"
        "from jaxdali._pipeline.conditionals import converted\n"
        "print(converted(lambda x: x), sys._is_gil_enabled())\n"
    )
    environment = {n: x for n, x in os.environ.items() if n != "PYTHON_GIL"} | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], env=environment, cwd=places.ROOT, capture_output=True, text=True
    )
    assert done.stdout.endswith(" False\n"), done.stdout + done.stderr


def test_64_threads_over_one_pool():
    """They begin together, so that most of them find nothing compiled, and every one uses the pool of all functions."""
    compiled = jd.jit(lambda x, key: jd.resize(jd.decoders.image_random_crop(x, key=key), size=(16, 16)))
    keys = list(jax.random.split(jax.random.key(1), 4))

    def work(i):
        k, results = i % 4, []
        for _ in range(3):
            decoded = jd.decoders.image(FILES[: k + 1])
            results += [jd.resize(decoded, size=(9, 8 + k)).numpy(), compiled(FILES[: k + 1], keys[k]).numpy()]
            results += [*decoded, jd.rotate(images((k + 1, 14, 15, 3)), angle=7.0 * k, keep_size=True).numpy()]
        return results

    concurrent = at_once(work, range(64))
    serial = [work(i) for i in range(4)]
    for i, results in enumerate(concurrent):
        assert not isinstance(results, Exception), results
        for a, b in zip(results, serial[i % 4], strict=True):
            np.testing.assert_array_equal(a, b)


def test_16_threads_make_iterators():
    """Definitions are rewritten, functions traced and programs compiled in all of them."""

    def photo(info):
        if info.idx_in_epoch == 8:
            raise StopIteration
        return np.frombuffer(FILES[info.idx_in_epoch % 5], np.uint8)

    @jax_function
    def halved(x):
        return x // 2

    @data_iterator(output_map=["images"])
    @pipeline_def(batch_size=4, num_threads=2, device_id=None, seed=3, enable_conditionals=True)
    def augmented():
        resized = fn.resize(fn.decoders.image(fn.external_source(photo, batch=False)), size=(12, 10))
        if fn.random.coin_flip() == 1:
            resized = fn.flip(resized)
        return halved(resized)

    def work(_):
        return [np.asarray(batch["images"]) for batch in augmented()]

    expected = work(0)
    assert len(expected) == 2
    for results in at_once(work, range(16)):
        assert not isinstance(results, Exception), results
        np.testing.assert_array_equal(results, expected)


def test_threads_share_one_iterator(files):
    """Each sample comes once."""

    @data_iterator(output_map=["numbers"], reader_name="files")
    @pipeline_def(batch_size=2, num_threads=4, device_id=None)
    def numbers():
        return fn.reshape(fn.readers.file(files=files, name="files")[0], shape=[1])

    iterator = numbers()

    def work(_):
        numbers = []
        try:
            while True:
                numbers += np.asarray(next(iterator)["numbers"])[:, 0].tolist()
        except StopIteration:
            return numbers

    assert sorted(x for numbers in at_once(work, range(8)) for x in numbers) == list(range(1, 33))


def test_two_threads_compile_the_same_function(monkeypatch):
    """Operators are bound by the first sample of each, though the function was made for the other's."""
    x = jd.batch([np.arange(24.0, dtype=np.float32).reshape(4, 6)] * 2)
    whole = jd.batch([np.array([2, 12, 1, 1]), np.array([12, 2, 1, 1, 1])])
    shapes, both, calls, build = [whole.slice[:2], whole.slice[:3]], threading.Barrier(2), [], Executor.build

    def together(self):
        calls.append(self)
        if len(calls) <= 2:
            both.wait(60)
        build(self)

    monkeypatch.setattr(Executor, "build", together)
    results = at_once(lambda shape: [y.shape for y in jd.reshape(x, shape=shape)], shapes)
    assert results == [[(2, 12), (12, 2)], [(2, 12, 1), (12, 2, 1)]]


def test_one_thread_rewrites_a_function(monkeypatch):
    """It is rewritten once, and nobody gets it as the user wrote it."""
    factory, rewritten = conditionals._compile_factory, []

    def slow(f):
        rewritten.append(f)
        time.sleep(0.2)
        return factory(f)

    def chosen(x):
        return 1 if x else 2

    monkeypatch.setattr(conditionals, "_compile_factory", slow)
    functions = at_once(lambda f: conditionals.converted(f), [chosen] * 4)
    assert len(rewritten) == 1
    assert all(f is not chosen and f(0) == 2 for f in functions)
