"""The interpreter exits while our threads work: in time, without a message, and with the script's status."""

import subprocess
import sys

import pytest

EXIT = """
import queue, threading
import numpy as np
from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax import DALIGenericIterator

start = threading.Thread.start

def start_before_exit(thread):  # as Python has it from 3.12 on
    if not threading.main_thread().is_alive():
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start(thread)

threading.Thread.start = start_before_exit
data = queue.SimpleQueue()
data.put(np.zeros(2))
it = DALIGenericIterator(pipeline_def(lambda: fn.external_source(lambda: data.get(), parallel=True, batch=True))(batch_size=2), ["x"])
next(it)
print("at the end", flush=True)
"""


def test_exit_while_a_source_waits():
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "at the end\n", "")


IN_THE_MAKING = """
import threading
import numpy as np
from jaxdali import fn, pipeline_def
from jaxdali._runner import shutdown

shutdown.EXIT_PATIENCE = 0.0
image = np.zeros((700, 700, 3), np.uint8)

@pipeline_def(batch_size=40, num_threads=2, prefetch_queue_depth=1)
def define():
    images = fn.external_source(lambda: [image] * 40, layout="HWC")
    return fn.gaussian_blur(images, window_size=31)

pipe = define()
pipe.run()
threading.Thread(target=lambda: [pipe.run() for _ in range(99)], daemon=True).start()
"""


def test_exit_while_a_large_batch_is_made():
    """A thread that returned from JAX to an interpreter that is gone would abort the process."""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", IN_THE_MAKING], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


WHILE_IT_COMPILES = """
import sys, threading, time
import jax.numpy as jnp
import numpy as np
from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax.fn import jax_function

begun = threading.Event()

def takes_long(x):
    if x.shape[1] > 1:
        print("begun", flush=True)
        begun.set()
        for i in range({steps}):
            time.sleep({pause})
            x = jnp.sort(jnp.sin(x * i) @ jnp.ones((x.shape[1],) * 2), axis=1)
    return x

def main():
    shapes = iter([(1,), (30,), (30,)])
    def define():
        return jax_function(takes_long, jit=True)(fn.external_source(lambda: [np.zeros(next(shapes), np.float32)] * 2).gpu())
    pipe = pipeline_def(define)(batch_size=2)
    pipe.run()
    begun.wait(50)
    time.sleep(0.5)
    return pipe

pipe = main()
pipe = pipe if {kept} else None
sys.exit(7)
"""


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(("steps", "pause"), [(10_000, 0.01), (40, 0)])  # in Python, where it is interrupted; in XLA
def test_exit_while_a_function_compiles(steps, pause, kept):
    code = WHILE_IT_COMPILES.format(steps=steps, pause=pause, kept=kept)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (7, "begun\n", "")


DAEMONS = """
import sys, threading
import numpy as np
import jaxdali.dynamic as jd
from jaxdali import fn, pipeline_def, types
from jaxdali.plugin.jax import data_iterator, peekable_data_iterator

begun = threading.Semaphore(0)

def blocked():
    begun.release()
    threading.Event().wait()

def quick():
    begun.release()
    return np.zeros((2, 2), np.float32)

def source_of(function):
    return lambda: fn.external_source(function, parallel=True, batch=True, dtype=types.FLOAT, ndim=1)

def for_ever(call):
    def loop():
        while True:
            call()
    return loop

iterators = [data_iterator(source_of(f), ["x"], prepare_first_batch=False)(batch_size=2) for f in (blocked, quick)]
peekable = peekable_data_iterator(source_of(blocked), ["x"], prepare_first_batch=False)(batch_size=2)
asynchronous = peekable_data_iterator(source_of(blocked), ["x"], prepare_first_batch=False)(batch_size=2)
pipes = [pipeline_def(source_of(f))(batch_size=2) for f in (blocked, quick)]
reader = jd.readers.File(files=sys.argv[1:])

def read():
    for batch in reader.next_epoch(batch_size=2):
        begun.release()

calls = [
    *(it.__next__ for it in iterators), peekable.peek, lambda: asynchronous.peek_async().result(),
    *(p.run for p in pipes), read,
]
for call in calls:
    threading.Thread(target=for_ever(call), daemon=True).start()
for _ in range(200):
    begun.acquire()
print("at the end", flush=True)
"""


def test_exit_while_daemon_threads_take_batches(files):
    """The user has closed nothing, so the threads end without an error."""
    done = subprocess.run([sys.executable, "-c", DAEMONS, *files], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "at the end\n", "")


NATIVE_SOURCE = """
import jax
import numpy as np
from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax import DALIGenericIterator

matrix = np.ones((300, 300), np.float32)
multiply = jax.jit(lambda x: (x @ x).sum())

def source(info):
    for _ in range(500):
        value = multiply(matrix).block_until_ready()
    return np.full(2, value)

define = lambda: fn.external_source(source, parallel=True, batch=False)
it = DALIGenericIterator(pipeline_def(define)(batch_size=8, py_num_workers=4), ["x"])
next(it)
print("at the end", flush=True)
"""


def test_exit_while_source_threads_compute():
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", NATIVE_SOURCE], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "at the end\n", "")
