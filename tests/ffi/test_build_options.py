"""Options of the build: the GPUs that CUDA kernels are compiled for, with a played nvcc and nvidia-smi."""

import shutil
import subprocess

import places
import pytest

SCRIPT = places.ROOT / "ffi" / "gpus.cmake"
pytestmark = pytest.mark.skipif(not (shutil.which("cmake") and SCRIPT.exists()), reason="needs cmake and the sources")

NVCC = "#!/bin/sh\nprintf 'compute_75\\ncompute_80\\ncompute_90\\ncompute_100\\n'\n"


@pytest.mark.parametrize(
    ("options", "gpus", "chosen"),
    [
        ({}, "", "/no NVIDIA GPU on the machine that built it"),
        ({}, "9.0\n", "90/"),
        ({}, "10.0\n8.0\n10.0\n", "80;100/"),
        ({}, "12.1\n", "100/"),  # newer than nvcc
        ({}, "7.5\n", "/the GPU is older than compute capability 8.0"),
        ({}, "7.5\n8.6\n", "80/"),
        ({"JAXDALI_CUDA_REAL": "90"}, "", "90/"),
        ({"JAXDALI_CUDA_REAL": "90"}, "8.0\n", "90/"),
        ({"JAXDALI_CUDA": "ON"}, "", "/"),  # the default of all architectures
        ({"JAXDALI_CUDA": "OFF"}, "9.0\n", "/switched off by JAXDALI_CUDA=OFF"),
        ({"JAXDALI_NVCC": ""}, "9.0\n", "/nvcc not found"),
    ],
)
def test_kernels_are_compiled_for_present_gpus(options, gpus, chosen, tmp_path):
    for name, text in {"nvcc": NVCC, "nvidia-smi": f"#!/bin/sh\nprintf '{gpus}'\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    values = {
        "JAXDALI_CUDA": "AUTO",
        "JAXDALI_NVCC": tmp_path / "nvcc",
        "JAXDALI_NVIDIA_SMI": tmp_path / "nvidia-smi",
    } | options
    script = tmp_path / "choice.cmake"
    script.write_text(f'include("{SCRIPT}")\njaxdali_gpus(real why)\nmessage("${{real}}/${{why}}")\n')
    command = ["cmake", *(f"-D{name}={value}" for name, value in values.items()), "-P", script]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == f"{chosen}\n"
