"""Compares the CUDA kernels, which the emulation runs on the CPU, with the CPU kernels."""

import importlib
from typing import Any

import emulated
import jax
import jpeg_checks
import numpy as np
import pytest
from jpeg_corpus import corpus
from kernels import CASES, compare, run

TARGETS = emulated.required()


MODULE: Any = importlib.import_module("jaxdali._emulated")
LISTED = [name for name, _ in MODULE.kernels()]  # before anything is launched


MIN_CASES = {"warp": 21}  # of other kernels 16


@pytest.mark.parametrize("kernel", CASES)
def test_results_equal_the_cpu_kernels(kernel):
    launches = MODULE.kernels()
    num_cases, expected = compare(kernel, TARGETS[kernel]), MIN_CASES.get(kernel, 16)
    assert num_cases >= expected, f"{kernel}_cases in tests/kernels.py yields {num_cases} batches, not {expected}"
    assert launched_since(launches)


def launched_since(launches: list[tuple[str, int]]) -> list[str]:
    """The kernels launched, which must have been listed when the module was loaded: a GPU then loads them before
    anything runs there.
    """
    counts = MODULE.kernels()
    assert [name for name, _ in counts] == LISTED
    return [name for (name, count), (_, earlier) in zip(counts, launches, strict=True) if count > earlier]


def test_kernels_are_listed_before_they_are_launched():
    launches = MODULE.kernels()
    jpeg_checks.decode([f.data for f in corpus()[:1]], jpeg_checks.emulated_kernels())
    names = " ".join(launched_since(launches))
    assert all(
        k in names for k in ("Prepare", "UnstuffCount", "SyncBlocks", "DecodeWrite", "DcPrefix", "CopyKernel")
    ), names


def test_a_sample_is_planned_once():
    """Two launches, once each: one that plans all samples, and one that works."""
    launches = MODULE.kernels()
    run(next(CASES["window"](np.random.default_rng(0))), TARGETS["window"], device=jax.devices()[0])
    plan, work = sorted(launched_since(launches), key=lambda name: "PlanSamples" not in name)
    assert "PlanSamples<" in plan
    assert "PlanSamples<" not in work
    counts = dict(MODULE.kernels())
    assert [counts[name] - dict(launches)[name] for name in (plan, work)] == [1, 1]


def test_kernels_of_an_operator_share_their_plan():
    """nvcc compiles one plan instead of one for each pair of types."""
    plans = [name for name in LISTED if "PlanSamples<" in name]
    assert len(plans) == len({*plans})
    assert len(plans) < len(LISTED) // 8


def test_every_cuda_kernel_is_compared():
    assert TARGETS.keys() == CASES.keys() | {"decode", "chain"}  # see test_jpeg_kernels.py and _program/test_fusion.py
