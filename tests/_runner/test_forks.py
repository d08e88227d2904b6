"""Forked processes: what they can do, and the errors in place of waits for threads that a fork does not have."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork")

SCRIPT = """
import os, sys
import jax
import numpy as np
import jaxdali.dynamic as jd
from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax import DALIGenericIterator

before, within, *files = sys.argv[1:]

def define():
    return fn.resize(fn.random.uniform(shape=[60, 60, 3]), size=(50, 50))

def iterate():
    it = DALIGenericIterator(pipeline_def(define)(batch_size=4), ["x"])
    for _ in range(5):
        next(it)
    return it

def run(**options):
    pipe = pipeline_def(define)(batch_size=4, **options)
    for _ in range(5):
        pipe.run()
    return pipe

def read(reader=None):
    return len(list((reader or jd.readers.File(files=files)).next_epoch(batch_size=4)))

def read_in_pipeline():
    return len(pipeline_def(lambda: fn.readers.file(files=files)[0])(batch_size=4).run())

reader = jd.readers.File(files=files)
match before:
    case "jax":
        jax.device_put(1)
    case "iterator":
        old = iterate()
    case "pipeline":
        old = run()
    case "reader":
        old = reader
        next(old.next_epoch(batch_size=4))
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
try:
    match within:
        case "the old one":
            next(old) if before == "iterator" else old.run() if before == "pipeline" else read(old)
        case "iterator":
            iterate()
        case "pipeline":
            run()
        case "synchronous":
            run(exec_pipelined=False, exec_async=False)
        case "debug":
            run(debug=True)
        case "readers":
            read(), read(reader), read_in_pipeline()
    print("works", flush=True)
except RuntimeError as e:
    print(e, flush=True)
os._exit(0)  # as processes of multiprocessing end; what JAX has in a fork could not end otherwise
"""


def run(before, within, files):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, before, within, *files],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("within", ["iterator", "pipeline", "readers"])
def test_fork_before_jax_runs(within, files):
    assert run("nothing", within, files) == "works\n"


@pytest.mark.parametrize("before", ["iterator", "pipeline", "reader"])
def test_fork_can_not_go_on(before, files):
    assert "is a fork of it" in run(before, "the old one", files)


@pytest.mark.parametrize(
    ("before", "within"),
    [("jax", "iterator"), ("iterator", "pipeline"), ("pipeline", "synchronous"), ("pipeline", "debug")],
)
def test_fork_after_jax_ran_is_refused(before, within, files):
    assert "this process was forked from one that had run JAX" in run(before, within, files)


def test_readers_in_a_fork(files):
    """They run no JAX."""
    assert run("iterator", "readers", files) == "works\n"
