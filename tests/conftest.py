"""Eight CPU devices, strict dtype promotion, and the installed package rather than the source folder."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent

# `python -m pytest` puts the working directory first on the path; unless the compiled module was built into it, what is to
# be tested is the installed package; also in the processes that tests start.
if not list((ROOT / "jaxdali").glob("_cpu*.so")):
    sys.path[:] = [p for p in sys.path if pathlib.Path(p).resolve() != ROOT]
    os.environ["PYTHONSAFEPATH"] = "1"

import jax  # noqa: E402

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_dtype_promotion", "strict")
