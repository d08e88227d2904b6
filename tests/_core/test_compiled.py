"""The compiled module, in a process that imports the package again."""

import os
import pathlib
import shutil
import subprocess
import sys

import jaxdali
from jaxdali import _cpu


def test_import_anew_after_removal(tmp_path):
    """The compiled module can be loaded once in a process. What was made before the removal works, too."""
    program = """
import sys
import numpy as np

def numbers():
    from jaxdali import _cpu, fn, pipeline_def
    assert _cpu is sys.modules["jaxdali._cpu"]
    return pipeline_def(lambda: fn.external_source(lambda i: np.full((2, 3), i)) + 1)(batch_size=2)

first = numbers()
first.run()
for _ in range(2):
    for name in [name for name in sys.modules if name.startswith("jaxdali")]:
        del sys.modules[name]
    print(numbers().run()[0].as_array().tolist())
print(first.run()[0].as_array().tolist())
"""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(jaxdali.__file__).parents[1])}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert run.stdout.split("\n")[:3] == ["[[1, 1, 1], [1, 1, 1]]"] * 2 + ["[[2, 2, 2], [2, 2, 2]]"], run.stderr


def test_import_of_another_module_is_refused(tmp_path):
    """From another folder, and of a file that was replaced: the old module would run with new Python code."""
    file, package = pathlib.Path(_cpu.__file__), pathlib.Path(jaxdali.__file__).parent
    copies = [tmp_path / name / "jaxdali" for name in ("a", "b")]
    for copy in copies:
        shutil.copytree(package / "_core", copy / "_core")
        for source in (package / "__init__.py", package / "__init__.pyi", package / "_version.py", file):
            shutil.copy2(source, copy)
    program = f"""
import os
import sys

# An editable installation finds its own package in any case.
sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]

def import_from(folder):
    for name in [name for name in sys.modules if name.startswith("jaxdali")]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    try:
        import jaxdali
        print("imported")
    except ImportError as e:
        print(e)
    sys.path.remove(folder)

a, b = {[str(copy.parent) for copy in copies]}
for folder in (a, b, a):
    import_from(folder)
os.utime(a + "/jaxdali/{file.name}", (1, 1))
import_from(a)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    refusals = [
        "this process has loaded the compiled module of another installation or version of jaxdali than the one in "
        f"{copy}, and can't load a second one: restart Python"
        for copy in copies
    ]
    assert run.stdout.splitlines() == ["imported", refusals[1], "imported", refusals[0]], run.stderr
