"""Automatic augmentation compared with DALI 2.4: `tests/data/auto_aug.npz` has its images, `auto_aug.json` its policies
and suites.
"""

import json
from typing import Any

import numpy as np
import pytest
from places import DATA

from jaxdali import Pipeline, fn, pipeline_def, types
from jaxdali.auto_aug import augmentations, auto_augment, rand_augment, trivial_augment
from jaxdali.auto_aug.core import Policy, augmentation, select, signed_bin

DALI = np.load(DATA / "auto_aug.npz")
LISTS = json.loads((DATA / "auto_aug.json").read_text())
EXACT = {
    "brightness",
    "contrast",
    "posterize",
    "solarize",
    "solarize_add",
    "invert",
    "equalize",
    "auto_contrast",
    "identity",
}


def run(define, batch_size=4, n=1, **arguments) -> Any:
    pipe = pipeline_def(
        define, batch_size=batch_size, num_threads=2, **{"seed": 1, "enable_conditionals": True, **arguments}
    )()
    for _ in range(n - 1):
        pipe.run()
    outputs = [[np.asarray(x) for x in o.as_cpu()] for o in pipe.run()]
    pipe.close()
    return outputs


def images(n=4):
    return fn.external_source(lambda: [DALI["image"]] * n, layout="HWC")


@pytest.mark.parametrize("name", [n for n in DALI.files if n != "image"])
def test_augmentations(name):
    aug = getattr(augmentations, name)
    if name.endswith("no_shape"):
        aug = aug.augmentation(mag_range=(0, 12))

    def define():
        bins: Any = fn.external_source(lambda: np.array([0, 3, 7, 10], np.int32))
        if aug.randomly_negate:
            bins = signed_bin(bins, fn.external_source(lambda: np.array([0, 1, 0, 1], np.int32)))
        x = images()
        return aug(x, magnitude_bin=bins, num_magnitude_bins=11, shape=x.shape(), unused=1)

    np.testing.assert_allclose(
        np.stack(run(define)[0]).astype(int), DALI[name].astype(int), rtol=0, atol=0 if name in EXACT else 1
    )


@pytest.mark.parametrize("name", ["contrast", "auto_contrast"])
def test_frames_are_augmented_as_images(name):
    shades = [DALI["image"], DALI["image"][:-3, 5:] // 2, DALI["image"][7:] // 3 + 50, DALI["image"][:, :-9]]
    sequences = [np.stack([shade - shade.min() // (1 + f) for f in range(n)]) for shade, n in zip(shades, (3, 1, 5, 2))]
    bins = np.array([0, 3, 7, 10], np.int32)

    def augmented(samples, bins, layout):
        def define():
            x = fn.external_source(lambda: samples, layout=layout)
            signed = signed_bin(fn.external_source(lambda: bins), fn.external_source(lambda: bins % 2))
            return getattr(augmentations, name)(x, magnitude_bin=signed, num_magnitude_bins=11)

        return run(define, batch_size=len(samples))[0]

    counts = [len(s) for s in sequences]
    expected = augmented([f for s in sequences for f in s], bins.repeat(counts), "HWC")
    frames = [f for s in augmented(sequences, bins, "FHWC") for f in s]
    for frame, expected_frame in zip(frames, expected, strict=True):
        np.testing.assert_array_equal(frame, expected_frame)


def described(suite):
    def describe(x):
        ranges = None if x.mag_range is None else [float(m) for m in x.mag_range]
        return [
            x.name,
            ranges,
            x.randomly_negate,
            x._settings["mag_to_param"].__name__ if x._settings["mag_to_param"] else None,
        ]

    return [describe(x) for x in suite]


@pytest.mark.parametrize("use_shape", [False, True])
def test_suites(use_shape):
    assert described(trivial_augment.get_trivial_augment_wide_suite(use_shape)) == LISTS[f"trivial {use_shape}"]
    assert described(rand_augment.get_rand_augment_suite(use_shape)) == LISTS[f"rand {use_shape}"]
    assert (
        described(rand_augment.get_rand_augment_non_monotonic_suite(use_shape)) == LISTS[f"non monotonic {use_shape}"]
    )
    assert (
        described(auto_augment.get_image_net_policy(use_shape).augmentations.values())
        == LISTS[f"image_net {use_shape}"]
    )


@pytest.mark.parametrize("make", ["image_net", "reduced_image_net", "svhn", "reduced_cifar10"])
def test_policies(make):
    policy = getattr(auto_augment, f"get_{make}_policy")()
    expected = LISTS[policy.name]
    assert policy.num_magnitude_bins == expected["bins"]
    assert [[[a.name, p, m] for a, p, m in sub_policy] for sub_policy in policy.sub_policies] == expected["sub"]
    assert {n: described([a])[0][1:] for n, a in policy.augmentations.items()} == expected["augs"]


def marked(number):
    """An augmentation that leaves its number and magnitude in an image."""

    @augmentation(mag_range=(0, 10), randomly_negate=number % 2 == 1, name=f"mark{number}")
    def mark(data, magnitude):
        return fn.cast(data * 0 + 100 * number + magnitude, dtype=types.INT32)

    return mark


def test_trivial_augment_draws_alike():
    """All augmentations, magnitudes and signs are equally frequent, and independent of each other even with a user's
    seed.
    """

    def define():
        x = fn.external_source(lambda: np.zeros((512, 1), np.int32))
        return trivial_augment.apply_trivial_augment([marked(i) for i in range(4)], x, num_magnitude_bins=11, seed=7)

    results = np.concatenate([np.concatenate(run(define, 512, n)[0]) for n in (1, 2, 3, 4)])
    numbers = np.round(results / 100).astype(int)
    all_magnitudes = results - 100 * numbers
    assert (np.abs(np.bincount(numbers, minlength=4) / len(results) - 0.25) < 0.05).all()
    for k in range(4):
        magnitudes = all_magnitudes[numbers == k]
        assert abs(np.abs(magnitudes).mean() - 5) < 0.6
        assert abs((magnitudes < 0).sum() / (magnitudes != 0).sum() - 0.5 * (k % 2)) < 0.1


def test_rand_augment_applies_n():
    @augmentation
    def one_more(data, _):
        return data + 1

    @augmentation(mag_range=(0, 10))
    def add(data, m):
        return fn.cast(data + 10 * m, dtype=types.INT32)

    def define():
        x = fn.external_source(lambda: np.zeros(64, np.int32))
        return rand_augment.apply_rand_augment([one_more, add], x, 3, 4, num_magnitude_bins=11)

    assert set(np.array(run(define, 64)[0]).tolist()) == {3, 42, 81, 120}


def test_auto_augment_applies_steps_by_probability():
    always, never, half = marked(0), marked(1), marked(2)
    policy = Policy("mine", 11, [[(always, 1.0, 3), (half, 0.5, 7)], [(half, 1.0, 1)], [(never, 1e-9, 5)]])

    def define():
        return auto_augment.apply_auto_augment(policy, fn.external_source(lambda: np.full(600, -5, np.int32)))

    results = np.array(run(define, 600)[0])
    values, counts = np.unique(results, return_counts=True)
    assert values.tolist() == [-5, 3, 201, 207]
    np.testing.assert_allclose(counts / 600, [1 / 3, 1 / 6, 1 / 3, 1 / 6], atol=0.07)


def test_the_whole_on_images():
    def define():
        x = images(32)
        shape = x.shape()
        return (
            trivial_augment.trivial_augment_wide(x, shape=shape),
            rand_augment.rand_augment(x, 2, 9, excluded=["equalize"]),
            auto_augment.auto_augment(x, shape=[18, 23], fill_value=None),
            auto_augment.auto_augment(fn.resize(x, size=(8, 8)), "reduced_image_net"),
        )

    outputs = run(define, 32)
    assert [o[0].shape for o in outputs] == [(18, 23, 3)] * 3 + [(8, 8, 3)]
    for o in outputs:
        assert 8 < len({x.tobytes() for x in o}) <= 32


def test_files():
    def define():
        x = fn.external_source(name="x", layout="HWC")
        return trivial_augment.trivial_augment_wide(x)

    pipe = pipeline_def(define, batch_size=8, num_threads=2, seed=5, enable_conditionals=True)()
    text = pipe.serialize()
    results = []
    for p in (pipe, Pipeline.deserialize(text)):
        p.feed_input("x", [DALI["image"]] * 8)
        results.append([np.asarray(x).tobytes() for x in p.run()[0]])
        p.close()
    assert results[0] == results[1]


def test_own_augmentations_may_ask():
    @augmentation(mag_range=(0, 10))
    def asks(data, magnitude):
        if magnitude > 5:
            data = data + 100
        else:
            data = data - 1
        return data

    def define():
        x = fn.external_source(lambda: np.zeros(4, np.int32))
        return asks(
            x, magnitude_bin=fn.external_source(lambda: np.array([0, 4, 6, 10], np.int32)), num_magnitude_bins=11
        )

    assert np.array(run(define)[0]).tolist() == [-1, -1, 100, 100]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: augmentation(lambda data: data), "must take the data and a parameter by position"),
        (lambda x: augmentation(augmentations.rotate), "is already an augmentation"),
        (lambda x: augmentations.rotate(x, magnitude_bin=3), "pass num_magnitude_bins"),
        (lambda x: augmentations.rotate(x, num_magnitude_bins=3), "pass magnitude_bin"),
        (
            lambda x: augmentations.translate_x(x, magnitude_bin=1, num_magnitude_bins=3),
            "translate_x needs the argument shape",
        ),
        (lambda x: signed_bin(1.5), "magnitude_bin must be a whole number"),  # pyright: ignore[reportArgumentType]
        (lambda x: select([], x), "no augmentation to choose from"),
        (lambda x: Policy("p", 0, []), "num_magnitude_bins must be a positive number"),
        (lambda x: Policy("p", 3, [[(augmentations.rotate, 0.5, 3)]]), "must be a number from 0 to 2, got 3"),
        (lambda x: Policy("p", 3, [[(augmentations.rotate, 1.5, 1)]]), "a number from 0 to 1, got 1.5"),
        (lambda x: Policy("p", 3, [[(augmentations.rotate, 0.5, None)]]), "without a magnitude bin"),
        (lambda x: auto_augment.auto_augment(x, "cifar"), "policy_name must be one of"),
        (lambda x: auto_augment.auto_augment(x, "reduced_image_net", shape=(3, 3)), "shape can't be given"),
        (lambda x: rand_augment.rand_augment(x, 2, 31), "m must be a whole number from 0 to 30, got 31"),
        (lambda x: rand_augment.rand_augment(x, 2, 3, excluded=["blur"]), "there is no augmentation 'blur'"),
        (
            lambda x: trivial_augment.trivial_augment_wide(x, max_translate_rel=1.0),
            "max_translate_rel is for translations with",
        ),
        (
            lambda x: trivial_augment.apply_trivial_augment([augmentations.invert], x, shade=3),
            "no augmentation takes the argument shade",
        ),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        run(lambda: call(images()))


@pytest.mark.parametrize(
    ("step", "message"),
    [((augmentations.invert, 0, None), "probability 0"), ((augmentations.invert, 0.5, 3), "no magnitudes")],
)
def test_warnings_of_policies_name_the_line(step, message):
    with pytest.warns(UserWarning, match=message) as warned:
        Policy("p", 9, [[step]])
    assert warned[0].filename == __file__
