"""A pytest plugin: JAX has settings that programs give it, among them a mesh, set in the thread of each test.

    PYTHONPATH=tests pytest -p user_settings --jax mesh=explicit --jax jax_debug_nans=1 -m "not one_device"
    tests/dynamic ...

``mesh`` has one axis over all devices, ``explicit`` or ``auto``. Other names are those of `jax.config`. Tests with the
mark `one_device` compute with arrays that lie elsewhere, which JAX refuses while a mesh is set.
"""

import contextlib

import jax
import pytest

AXES = {"explicit": jax.sharding.AxisType.Explicit, "auto": jax.sharding.AxisType.Auto}


def pytest_addoption(parser):
    parser.addoption(
        "--jax", action="append", default=[], metavar="NAME=VALUE", help="a setting of JAX, or mesh=explicit, mesh=auto"
    )


@pytest.fixture(autouse=True)
def user_settings(request):
    chosen = dict(option.split("=", 1) for option in request.config.getoption("--jax"))
    axes = chosen.pop("mesh", None)
    mesh = None if axes is None else jax.make_mesh((jax.device_count(),), ("devices",), axis_types=(AXES[axes],))
    earlier = {name: getattr(jax.config, name) for name in chosen}
    for name, value in chosen.items():
        jax.config.update(name, int(value) if value.isdecimal() else value)
    with contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh):
        yield
    for name, value in earlier.items():
        jax.config.update(name, value)
