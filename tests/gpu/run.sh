#!/usr/bin/env bash
# The CUDA kernels on an NVIDIA GPU: builds them, compares them with the CPU kernels, prints timings. One command, without
# network: tests/gpu/run.sh
# Needs nvcc, a C++ compiler, headers of libjpeg-turbo and libpng, and in the Python that $PYTHON names (default: python3)
# jax with its CUDA plugin, nanobind, cmake, ninja, Pillow and pytest. The modules are built into the source folder.
# So far no GPU was at hand: neither the kernels nor this script ever ran on one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=$(command -v "${PYTHON:-python3}")
export PATH="$(dirname "$python"):$PATH"

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
cmake -G Ninja -S . -B build/gpu -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$python" -DJAXDALI_CUDA=ON -DJAXDALI_OUTPUT="$PWD/jaxdali"
cmake --build build/gpu

export PYTHONPATH="$PWD" JAX_PLATFORMS=cuda,cpu XLA_PYTHON_CLIENT_PREALLOCATE=false
"$python" -c 'import jaxdali; jaxdali.show_config()'
JAXDALI_REQUIRE_CUDA=1 "$python" -m pytest -v tests/gpu
"$python" tests/gpu/timings.py
