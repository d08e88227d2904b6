"""JPEG decoding by the CUDA kernels, emulated on the CPU, against libjpeg-turbo; on a GPU: gpu/test_cuda.py."""

import dataclasses

import jpeg_checks
import pytest
from jpeg_corpus import corpus


@pytest.fixture(scope="module")
def emulated():
    return jpeg_checks.emulated_kernels()


def test_libjpeg_on_the_cpu_equals_pillow():
    """The reference of the others is one itself, on all files."""
    for batch in jpeg_checks.batches(corpus()):
        actual = jpeg_checks.decode([f.data for f in batch])
        for f, x in zip(batch, actual.pixels, strict=True):
            if f.name.startswith("extreme"):
                continue  # there libjpeg-turbo's SIMD code, which not every build has, differs from its C code
            jpeg_checks.assert_same(x, jpeg_checks.pillow(f.data), f.name)


def test_corpus(emulated):
    assert jpeg_checks.check_corpus(emulated) >= 500


@pytest.mark.parametrize("bits", [256, 1024, 2048])
def test_subsequences_of_other_lengths(emulated, bits):
    kernels = dataclasses.replace(emulated, subsequence_bits=bits)
    assert jpeg_checks.check_corpus(kernels, corpus()[:: 1 if bits > 1000 else 3]) > 150
    jpeg_checks.check_damaged(kernels, 128, seed=bits)


@pytest.mark.parametrize("groups", [2, 7])
def test_groups(emulated, groups):
    """Images whose coefficients share memory, one group after the other; also after files that are refused halfway."""
    kernels = dataclasses.replace(emulated, groups=groups)
    assert jpeg_checks.check_corpus(kernels, corpus()[::3]) > 150
    good, refused = jpeg_checks.check_damaged(kernels, 128, seed=groups)
    assert good > 10
    assert refused > 20


def test_regions_orientations_and_types(emulated):
    jpeg_checks.check_parts(emulated)


def test_damaged(emulated):
    good, refused = jpeg_checks.check_damaged(emulated)
    assert good > 50
    assert refused > 100


def test_empty_segments(emulated):
    jpeg_checks.check_empty_segments(emulated)


def test_flat_images(emulated):
    jpeg_checks.check_flat(emulated)


def test_dc_values_of_many_blocks(emulated):
    jpeg_checks.check_dc(emulated)


def test_absent_and_broken_samples(emulated):
    jpeg_checks.check_absent(emulated)
