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


@pytest.mark.parametrize("kernel", CASES)
def test_same_as_on_the_cpu(kernel):
    before = MODULE.kernels()
    assert compare(kernel, TARGETS[kernel]) > 20 - 5 * (kernel != "warp")
    assert launched_since(before)


def launched_since(before: list[tuple[str, int]]) -> list[str]:
    """The kernels launched, which must have been listed when the module was loaded: a GPU then loads them before
    anything runs there.
    """
    after = MODULE.kernels()
    assert [name for name, _ in after] == LISTED
    return [name for (name, now), (_, then) in zip(after, before, strict=True) if now > then]


def test_kernels_are_listed_before_they_are_launched():
    before = MODULE.kernels()
    jpeg_checks.decode([f.data for f in corpus()[:1]], jpeg_checks.emulated_kernels())
    names = " ".join(launched_since(before))
    assert all(
        k in names for k in ("Prepare", "UnstuffCount", "SyncBlocks", "DecodeWrite", "DcPrefix", "CopyKernel")
    ), names


def test_a_sample_is_planned_once():
    """Two launches, once each: one that plans all samples, and one that works."""
    before = MODULE.kernels()
    run(next(CASES["window"](np.random.default_rng(0))), TARGETS["window"], device=jax.devices()[0])
    plan, work = sorted(launched_since(before), key=lambda name: "PlanSamples" not in name)
    assert "PlanSamples<" in plan
    assert "PlanSamples<" not in work
    counts = dict(MODULE.kernels())
    assert [counts[name] - dict(before)[name] for name in (plan, work)] == [1, 1]


def test_kernels_of_an_operator_share_their_plan():
    """nvcc compiles one plan instead of one for each pair of types."""
    plans = [name for name in LISTED if "PlanSamples<" in name]
    assert len(plans) == len({*plans})
    assert len(plans) < len(LISTED) // 8


def test_every_cuda_kernel_is_compared():
    assert TARGETS.keys() == CASES.keys() | {"decode", "chain"}  # see test_jpeg_kernels.py and _program/test_fusion.py
