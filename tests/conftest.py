"""Eight CPU devices, strict dtype promotion, and the installed package rather than the source folder."""

import collections
import contextlib
import gc
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent

# `python -m pytest` puts the working directory first on the path; unless the compiled module was built into it, what is
# to be tested is the installed package; also in the processes that tests start.
if not list((ROOT / "jaxdali").glob("_cpu*.so")):
    sys.path[:] = [p for p in sys.path if pathlib.Path(p).resolve() != ROOT]
    os.environ["PYTHONSAFEPATH"] = "1"

os.environ.setdefault("JAXDALI_TRACEBACK", "full")  # who works on the package wants to see its frames

import counts  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

with contextlib.suppress(ImportError):  # where golden cases alone are run, emulated
    import hypothesis

    # The same examples in each run; `pytest --hypothesis-profile=random --hypothesis-seed=N` looks for new ones.
    hypothesis.settings.register_profile("same", derandomize=True)
    hypothesis.settings.register_profile("random")
    hypothesis.settings.load_profile("same")

    @hypothesis.given(hypothesis.strategies.just(None))
    def _nothing(_: None):
        pass

    # The first run looks for what refers to its random numbers, and would not find what `garbage_of_earlier_files`
    # hides.
    _nothing()

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(scope="module", autouse=True)
def garbage_of_earlier_files():
    """Collects it, and hides what is left from the collector: JAX's caches hold millions of objects, and some tests
    collect very often.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_threads():
    """The package's threads that the test starts. None outlives it: it would compile, allocate and open files during
    the next ones.
    """
    threads = counts.Threads()
    yield threads
    threads.end()


@pytest.fixture
def played(monkeypatch):
    """A function after which CPU devices stand in for accelerators without kernels, such as TPUs."""
    from jaxdali._core import ffi
    from jaxdali._program.sharding import Shards

    def play():
        monkeypatch.setattr(ffi, "kernels_on", lambda device: frozenset())
        monkeypatch.setattr(Shards, "accelerator", property(lambda self: True))

    return play


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """32 files whose content is their number, from 1."""
    folder = tmp_path_factory.mktemp("files")
    for i in range(32):
        (folder / f"{i:02}").write_bytes(bytes([i + 1]))
    return sorted(str(f) for f in folder.iterdir())


def pytest_unconfigure():
    gc.unfreeze()  # so that the interpreter collects at its end what it would collect without the tests


def pytest_collection_modifyitems(items):
    if "JAXDALI_MANY" not in os.environ:
        for item in items:
            if item.get_closest_marker("many"):
                item.add_marker(pytest.mark.skip("it takes minutes, and JAXDALI_MANY=1 is not set"))


def pytest_terminal_summary(terminalreporter):
    """One line for each reason why tests were skipped; `pytest -rs` lists them one by one."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = collections.Counter(r.longrepr[2].removeprefix("Skipped: ") for r in reports)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")
