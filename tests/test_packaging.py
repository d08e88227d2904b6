"""Dependencies in pyproject.toml, and the workflows of the repository's host."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import places
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import jaxdali

PROJECT = tomllib.loads((places.ROOT / "pyproject.toml").read_text())


def test_the_test_group_has_the_optional_packages():
    """The packages that a test needs are there: the README's second command installs the group, not the extras."""
    groups = PROJECT["dependency-groups"]
    test = {d for d in groups["test"] if isinstance(d, str)} | {*groups["s3"]}
    for extra, needed in PROJECT["project"]["optional-dependencies"].items():
        if extra not in (
            "benchmark",
            "cuda13",
            "examples",
            "flax",
            "pack",
            "ray",
            "torch",
        ):  # the first command's, what CI installs by itself
            assert {*needed} <= test, extra


def test_dependencies_have_lower_bounds():
    extras = PROJECT["project"]["optional-dependencies"].values()
    for d in [*PROJECT["project"]["dependencies"], *(d for needed in extras for d in needed)]:
        assert ">=" in d or d.startswith(("jaxdali[", "jaxdali-cuda13==")), d


def test_cuda_package_has_the_same_version():
    """The extra installs the kernels of this very version, from a package that is built with the same tools and reads
    the same version.
    """
    assert f"jaxdali-cuda13=={jaxdali.__version__}" in PROJECT["project"]["optional-dependencies"]["cuda13"]
    folder = places.ROOT / "ffi" / "cuda13"
    package = tomllib.loads((folder / "pyproject.toml").read_text())
    assert package["project"]["name"] == "jaxdali-cuda13"
    assert package["build-system"] == PROJECT["build-system"]
    assert package["project"]["requires-python"] == PROJECT["project"]["requires-python"]
    settings, ours = package["tool"]["scikit-build"], PROJECT["tool"]["scikit-build"]
    assert settings["wheel"] == {"py-api": ours["wheel"]["py-api"], "packages": ["jaxdali_cuda13"]}
    assert (folder / settings["metadata"]["version"]["input"]).resolve() == places.ROOT / ours["metadata"]["version"][
        "input"
    ]
    assert (folder / "LICENSE").read_text() == (places.ROOT / "LICENSE").read_text()


def test_the_lower_bound_of_malt_has_conditionals():
    """With 2.15.2 and gast 0.7 an `if` on a DataNode stays as it is, and is an error."""
    (malt,) = (Requirement(d) for d in PROJECT["project"]["dependencies"] if d.startswith("diastatic-malt"))
    assert "2.15.2" not in malt.specifier
    assert "2.15.3" in malt.specifier


GITHUB = places.ROOT / ".github"
in_repository = pytest.mark.skipif(not GITHUB.exists(), reason="a source distribution has no .github")


@in_repository
def test_hosted_workflow_runs_all_ci_parts():
    """Each part of `.ci/run all` has a job there, which calls it by its name."""
    (parts,) = re.findall(r"^all=\(([^)]*)\)", (places.ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    workflow = (GITHUB / "workflows" / "ci.yml").read_text()
    (jobs,) = re.findall(r"part: \[([^]]*)\]", workflow)
    assert sorted(jobs.split(", ")) == sorted(parts.split())
    assert ".ci/run ${{ matrix.part }}" in workflow


@in_repository
def test_hosted_workflows_pin_actions():
    """By a commit, which nobody can move as they can a tag, with its version beside it; and they may only read."""
    for workflow in (GITHUB / "workflows").glob("*.yml"):
        text = workflow.read_text()
        uses = re.findall(r"\buses:(.*)", text)
        assert uses, workflow.name
        for action in uses:
            assert re.fullmatch(r" [\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action), f"{workflow.name}: {action}"
        assert re.findall(r"permissions:\n((?: +.*\n)+)", text) == ["  contents: read\n"], workflow.name


# The first versions without a published memory fault.
MENDED = {"libjpeg": "3.1.2", "zlib": "1.3.2", "libpng": "1.6.59", "libdeflate": "1.15", "libwebp": "1.3.2"}


def test_archives_begin_with_the_newest():
    """Whoever blocks the first hosts of a list gets the last archive."""
    text = (places.ROOT / "ffi" / "codecs.cmake").read_text()
    archives = dict(re.findall(r"jaxdali_codec\(jaxdali_(\w+) .*?ARCHIVES\s+([^)]*)\)", text, re.DOTALL))
    assert archives.keys() == MENDED.keys()
    assert not re.search(r"\bhttp:", text)
    for codec, names in archives.items():
        words = re.sub(r"#(?= ).*", "", names).split()  # without comments
        addresses = [a.strip('"') for a in words[::2]]
        assert all(re.match(r"https:|\$\{(debian|pypi)\}", a) for a in addresses)
        # The archive of a Python package has the library's version in the name of a folder, if anywhere.
        numbers = [re.findall(r"\d+(?:\.\d+)+", a.partition("#")[2] or a.rpartition("/")[2])[-1:] for a in addresses]
        versions = [Version(v) for (v,) in filter(None, numbers)]
        assert versions == sorted(versions, reverse=True), codec
        assert versions[-1] >= Version(MENDED[codec]), codec


@in_repository
def test_base_commit_of_instruction_counts():
    """It is in the history, and has the program, so that `.ci/instructions` does not skip."""
    base = (places.ROOT / ".ci" / "instructions.base").read_text().splitlines()[-1]
    assert re.fullmatch("[0-9a-f]{40}", base)

    def git(*arguments):
        return subprocess.run(["git", "-C", str(places.ROOT), *arguments], capture_output=True, text=True, timeout=60)

    if (
        not (places.ROOT / ".git").exists()
        or shutil.which("git") is None
        or git("rev-parse", "--is-shallow-repository").stdout != "false\n"
    ):
        pytest.skip("not a git repository with its history")
    assert git("merge-base", "--is-ancestor", base, "HEAD").returncode == 0
    assert git("cat-file", "-e", f"{base}:ffi/fuzz/count_instructions.cc").returncode == 0


@in_repository
@pytest.mark.parametrize("form", ["bug", "feature"])
def test_issue_forms_ask_for_the_configuration(form):
    """By a command that works."""
    (command,) = re.findall(
        r'`python -c "(.*jaxdali.show_config\(\))"`', (GITHUB / "ISSUE_TEMPLATE" / f"{form}.yml").read_text()
    )
    exec(command)


SHOWN = """
import jax, jaxdali
jaxdali.show_config()
jax.config.update("jax_num_cpu_devices", 3)  # an error once JAX has opened its devices
print("devices ", *jax.devices())
jaxdali.show_config()
"""


def test_devices_of_the_configuration():
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    done = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, env=environment, check=True)
    before, devices, after = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("devices ")]
    assert before == "not opened yet: call jax.devices() before".split()
    assert after == [*", ".join(devices).split(), "(default", "backend:", "cpu)"]
    assert len(devices) == 3


def test_versions_equal_the_projects():
    python = PROJECT["project"]["requires-python"].removeprefix(">=")
    readme = (places.ROOT / "README.md").read_text()
    assert f"Python {python} or newer" in readme
    bounds = {
        Requirement(d).name: str(Requirement(d).specifier).removeprefix(">=")
        for d in PROJECT["project"]["dependencies"]
    }
    assert bounds["jaxlib"] == bounds["jax"]
    assert f"JAX {bounds['jax']} or newer" in readme
    assert f'"jax=={bounds["jax"]}.0" "jaxlib=={bounds["jax"]}.0"' in (places.ROOT / ".ci/run").read_text()


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, r"there is none in \S+jaxdali, which is the source folder"),
        (
            "_cpu.cpython-38-x86_64-linux-gnu.so",
            r"_cpu\.cpython-38\S+ in \S+jaxdali is built for another Python .*No module",
        ),
    ],
)
def test_missing_compiled_module(module, reason, tmp_path):
    """The first sentence is the reason, and no text is about a circular import."""
    for name in ("__init__.py", "_core/__init__.py", "_core/compiled.py"):
        (tmp_path / "jaxdali" / name).parent.mkdir(exist_ok=True)
        shutil.copy(places.ROOT / "jaxdali" / name, tmp_path / "jaxdali" / name)
    if module is not None:
        (tmp_path / "jaxdali" / module).touch()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import jaxdali"
    # Without the installed packages, because an editable installation finds its own in any case.
    error = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True).stderr
    assert re.search(rf"ImportError: jaxdali's compiled module does not load: {reason}", error)
    assert "circular" not in error
