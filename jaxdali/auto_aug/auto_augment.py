"""AutoAugment (https://arxiv.org/abs/1805.09501): one of several sequences of augmentations for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import fn, types
from .._core import names as _names
from .._core.errors import ArgumentError, ArgumentTypeError
from .._core.graph import DataNode
from .._pipeline.conditionals import either
from ..fn._augmentation import taken
from . import _suites
from . import augmentations as a
from .core import Augmentation, Policy, signed_bin
from .core._augmentation import check_used

# The policies of the paper. Each step has a name, a probability, and a magnitude bin from 0 to 10.
_IMAGE_NET = (
    "equalize 0.8; shear_y 0.8 4",
    "color 0.4 9; equalize 0.6",
    "color 0.4 1; rotate 0.6 8",
    "solarize 0.8 3; equalize 0.4",
    "solarize 0.4 2; solarize 0.6 2",
    "color 0.2 0; equalize 0.8",
    "equalize 0.4; solarize_add 0.8 3",
    "shear_x 0.2 9; rotate 0.6 8",
    "color 0.6 1; equalize 1",
    "invert 0.4; rotate 0.6 0",
    "equalize 1; shear_y 0.6 3",
    "color 0.4 7; equalize 0.6",
    "posterize 0.4 6; auto_contrast 0.4",
    "solarize 0.6 8; color 0.6 9",
    "solarize 0.2 4; rotate 0.8 9",
    "rotate 1 7; translate_y 0.8 9",
    "solarize 0.8 4",
    "shear_y 0.8 0; color 0.6 4",
    "color 1 0; rotate 0.6 2",
    "equalize 0.8",
    "equalize 1; auto_contrast 0.6",
    "shear_y 0.4 7; solarize_add 0.6 7",
    "posterize 0.8 2; solarize 0.6 10",
    "solarize 0.6 8; equalize 0.6",
    "color 0.8 6; rotate 0.4 5",
)
_REDUCED_CIFAR10 = (
    "invert 0.1; contrast 0.2 6",
    "rotate 0.7 2; translate_x 0.3 9",
    "sharpness 0.8 1; sharpness 0.9 3",
    "shear_y 0.5 8; translate_y 0.7 9",
    "auto_contrast 0.5; equalize 0.9",
    "shear_y 0.2 7; posterize 0.3 7",
    "color 0.4 3; brightness 0.6 7",
    "sharpness 0.3 9; brightness 0.7 9",
    "equalize 0.6; equalize 0.5",
    "contrast 0.6 7; sharpness 0.6 5",
    "color 0.7 7; translate_x 0.5 8",
    "equalize 0.3; auto_contrast 0.4",
    "translate_y 0.4 3; sharpness 0.2 6",
    "brightness 0.9 6; color 0.2 8",
    "solarize 0.5 2",
    "equalize 0.2; auto_contrast 0.6",
    "equalize 0.2; equalize 0.6",
    "color 0.9 9; equalize 0.6",
    "auto_contrast 0.8; solarize 0.2 8",
    "brightness 0.1 3; color 0.7 0",
    "solarize 0.4 5; auto_contrast 0.9",
    "translate_y 0.9 9; translate_y 0.7 9",
    "auto_contrast 0.9; solarize 0.8 3",
    "equalize 0.8; invert 0.1",
    "translate_y 0.7 9; auto_contrast 0.9",
)
_SVHN = (
    "shear_x 0.9 4; invert 0.2",
    "shear_y 0.9 8; invert 0.7",
    "equalize 0.6; solarize 0.6 6",
    "invert 0.9; equalize 0.6",
    "equalize 0.6; rotate 0.9 3",
    "shear_x 0.9 4; auto_contrast 0.8",
    "shear_y 0.9 8; invert 0.4",
    "shear_y 0.9 5; solarize 0.2 6",
    "invert 0.9; auto_contrast 0.8",
    "equalize 0.6; rotate 0.9 3",
    "shear_x 0.9 4; solarize 0.3 3",
    "shear_y 0.8 8; invert 0.7",
    "equalize 0.9; translate_y 0.6 6",
    "invert 0.9; equalize 0.6",
    "contrast 0.3 3; rotate 0.8 4",
    "invert 0.8",
    "shear_y 0.7 6; solarize 0.4 8",
    "invert 0.6; rotate 0.8 4",
    "shear_y 0.3 7; translate_x 0.9 3",
    "shear_x 0.1 6; invert 0.6",
    "solarize 0.7 2; translate_y 0.6 7",
    "shear_y 0.8 4; invert 0.8",
    "shear_x 0.7 9; translate_y 0.8 3",
    "shear_y 0.8 5; auto_contrast 0.7",
    "shear_x 0.7 2; invert 0.1",
)
_REDUCED_IMAGE_NET = (
    "posterize 0.4 8; rotate 0.6 9",
    "solarize 0.6 5; auto_contrast 0.6",
    "equalize 0.8; equalize 0.6",
    "posterize 0.6 7; posterize 0.6 6",
    "equalize 0.4; solarize 0.2 4",
    "equalize 0.4; rotate 0.8 8",
    "solarize 0.6 3; equalize 0.6",
    "posterize 0.8 5; equalize 1",
    "rotate 0.2 3; solarize 0.6 8",
    "equalize 0.6; posterize 0.4 6",
    "rotate 0.8 8; color 0.4 0",
    "rotate 0.4 9; equalize 0.6",
    "equalize 0.8",
    "invert 0.6; equalize 1",
    "color 0.6 4; contrast 1 8",
    "rotate 0.8 8; color 1 2",
    "color 0.8 8; solarize 0.8 7",
    "sharpness 0.4 7; invert 0.6",
    "shear_x 0.6 5; equalize 1",
    "color 0.4 0; equalize 0.6",
    "equalize 0.4; solarize 0.2 4",
    "solarize 0.6 5; auto_contrast 0.6",
    "invert 0.6; equalize 1",
    "color 0.6 4; contrast 1 8",
    "equalize 0.8; equalize 0.6",
)


def auto_augment(
    data: DataNode,
    policy_name: str = "image_net",
    shape: DataNode | Sequence[int] | None = None,
    fill_value: int | None = 128,
    interp_type: types.DALIInterpType | None = None,
    max_translate_abs: _suites.Extent = None,
    max_translate_rel: _suites.Extent = None,
    seed: int | None = None,
) -> DataNode:
    """Applies a policy of the paper: each sample gets one of 25 sequences of up to two augmentations, each step with
    its probability.

    Args:
      data: images HWC or sequences FHWC of type uint8, with 1 or 3 channels.
      policy_name: "image_net", "reduced_image_net", "svhn" or "reduced_cifar10".
      shape: height and width, of all images or per sample; translations are then fractions of it.
      fill_value: the value of points outside an image that was sheared, translated or rotated; None: the nearest pixel.
      interp_type: the interpolation of these: INTERP_LINEAR (also None) or INTERP_NN.
      max_translate_abs: without `shape`, the largest translation in pixels, or (along y, along x). Default: 250.
      max_translate_rel: with `shape`, the largest translation as a fraction of it. Default: 1.
      seed: the seed of all draws. Differs from DALI, where the same seed correlates all draws.

    Raises:
      ArgumentError: an argument is out of range, or can't be combined with another or with the policy.
    """
    policies = {
        "image_net": get_image_net_policy,
        "svhn": get_svhn_policy,
        "reduced_cifar10": get_reduced_cifar10_policy,
    }
    if policy_name == "reduced_image_net":
        translation_arguments = {
            "shape": shape,
            "max_translate_abs": max_translate_abs,
            "max_translate_rel": max_translate_rel,
        }
        if unused := [n for n, x in translation_arguments.items() if x is not None]:
            raise ArgumentError(
                f"the policy {policy_name!r} has no translations, so {', '.join(unused)} can't be given"
            )
        policy = get_reduced_image_net_policy()
    elif policy_name in policies:
        policy = policies[policy_name](shape is not None, max_translate_abs, max_translate_rel)
    else:
        raise ArgumentError(
            f"policy_name must be one of {', '.join([*policies, 'reduced_image_net'])}, got {policy_name!r}"
        )
    return apply_auto_augment(policy, data, seed, **_suites.arguments(shape, fill_value, interp_type))


def auto_augment_image_net(
    data: DataNode,
    shape: DataNode | Sequence[int] | None = None,
    fill_value: int | None = 128,
    interp_type: types.DALIInterpType | None = None,
    max_translate_abs: _suites.Extent = None,
    max_translate_rel: _suites.Extent = None,
    seed: int | None = None,
) -> DataNode:
    """`auto_augment` with the policy "image_net"."""
    return auto_augment(data, "image_net", shape, fill_value, interp_type, max_translate_abs, max_translate_rel, seed)


def apply_auto_augment(policy: Policy, data: DataNode, seed: int | None = None, **kwargs: Any) -> DataNode:
    """Applies a user-defined policy.

    Args:
      policy: the policy.
      data: the samples, of which each gets one of the sequences of the policy.
      seed: the seed of all draws; None: the pipeline's.
      **kwargs: further arguments of the augmentations; each gets those that it accepts.
    """
    if not isinstance(policy, Policy):
        raise ArgumentTypeError(
            f"apply_auto_augment: policy must be a Policy, got {policy!r}; pass names of policies to auto_augment"
        )
    if not policy.sub_policies:
        raise ArgumentError(f"apply_auto_augment: the policy {policy.name!r} is empty")
    augmentations = tuple(policy.augmentations.values())
    check_used(augmentations, kwargs, "apply_auto_augment")
    steps = max(map(len, policy.sub_policies))
    seed_of_runs, seed_of_choice, seed_of_signs = _suites.derived_seeds(seed, num_draws=3)
    # Of each sample: a number for each step, which is applied if the number is below its probability; the index of a
    # sub-policy; and a sign for each step.
    draws = fn.random.uniform(range=[0, 1], shape=(steps,), dtype=types.FLOAT, seed=seed_of_runs)
    sub_policy = fn.random.uniform(values=list(range(len(policy.sub_policies))), dtype=types.INT32, seed=seed_of_choice)
    signs = (
        fn.random.uniform(values=[0, 1], shape=(steps,), dtype=types.INT32, seed=seed_of_signs)
        if any(x.randomly_negate for x in augmentations)
        else None
    )
    # Each step looks up its entry of the sample's sub-policy: a probability, a bin, and the index of an augmentation.
    for step in range(steps):
        # Shorter sub-policies end with steps that are never applied.
        entries = [
            policy_steps[step] if step < len(policy_steps) else (a.identity, 0.0, None)
            for policy_steps in policy.sub_policies
        ]
        probability = taken(np.array([p for _, p, _ in entries], np.float32), sub_policy)
        bins = taken(np.array([m or 0 for _, _, m in entries], np.int32), sub_policy)
        step_augmentations: list[Augmentation] = list(dict.fromkeys(x for x, _, _ in entries))
        index = taken(np.array([step_augmentations.index(x) for x, _, _ in entries], np.int32), sub_policy)
        magnitude: Any = bins if signs is None else signed_bin(bins, signs[step])
        arguments = {
            "data": data,
            "magnitude_bin": magnitude,
            "num_magnitude_bins": policy.num_magnitude_bins,
            **kwargs,
        }
        data = _apply_step(draws[step] < probability, step_augmentations, index, arguments)
    return data


def _apply_step(
    is_applied: DataNode, augmentations: list[Augmentation], index: DataNode, arguments: dict[str, Any]
) -> DataNode:
    """Applies to each sample the augmentation with its index, if `is_applied`."""
    return either(
        is_applied,
        lambda: _suites.select_augmentation(augmentations, index, "apply_auto_augment", **arguments),
        lambda: arguments["data"],
    )


def get_image_net_policy(
    use_shape: bool = False, max_translate_abs: _suites.Extent = None, max_translate_rel: _suites.Extent = None
) -> Policy:
    """The policy for ImageNet.

    Args:
      use_shape: whether translations are fractions of the image's shape.
      max_translate_abs: without `use_shape`, the largest translation in pixels, or (along y, along x). Default: 250.
      max_translate_rel: with `use_shape`, the largest translation as a fraction. Default: 1.
    """
    return _policy(
        "ImageNetPolicy",
        _IMAGE_NET,
        _suites.translations(use_shape, max_translate_abs, max_translate_rel, default_abs=250, default_rel=1.0),
    )


def get_reduced_cifar10_policy(
    use_shape: bool = False, max_translate_abs: _suites.Extent = None, max_translate_rel: _suites.Extent = None
) -> Policy:
    """The policy for reduced CIFAR-10; the arguments are those of `get_image_net_policy`."""
    return _policy(
        "ReducedCifar10Policy",
        _REDUCED_CIFAR10,
        _suites.translations(use_shape, max_translate_abs, max_translate_rel, default_abs=250, default_rel=1.0),
    )


def get_svhn_policy(
    use_shape: bool = False, max_translate_abs: _suites.Extent = None, max_translate_rel: _suites.Extent = None
) -> Policy:
    """The policy for SVHN; the arguments are those of `get_image_net_policy`."""
    return _policy(
        "SvhnPolicy",
        _SVHN,
        _suites.translations(use_shape, max_translate_abs, max_translate_rel, default_abs=250, default_rel=1.0),
    )


def get_reduced_image_net_policy() -> Policy:
    """The policy for reduced ImageNet."""
    return _policy("ReducedImageNetPolicy", _REDUCED_IMAGE_NET, [])


def _policy(name: str, rows: Sequence[str], translations: Sequence[Augmentation]) -> Policy:
    """Makes a policy with the ranges of magnitudes of the paper.

    Args:
      rows: sub-policies as text: ``"equalize 0.8; shear_y 0.8 4"``. Each step has a name, a probability, and a
        magnitude bin from 0 to 10, unless it has no magnitudes.
      translations: the augmentations translate_x and translate_y; empty: the policy has none.
    """
    # Ranges from the first to the last bin: fractions for shears, degrees, factors, bits, and values of pixels.
    with_ranges = [
        *translations,
        a.shear_x.augmentation((0, 0.3), randomly_negate=True),
        a.shear_y.augmentation((0, 0.3), randomly_negate=True),
        a.rotate.augmentation((0, 30), randomly_negate=True),
        a.brightness.augmentation((0.1, 1.9), randomly_negate=False, mag_to_param=None),
        a.color.augmentation((0.1, 1.9), randomly_negate=False, mag_to_param=None),
        a.contrast.augmentation((0.1, 1.9), randomly_negate=False, mag_to_param=None),
        a.sharpness.augmentation((0.1, 1.9), randomly_negate=False, mag_to_param=a.sharpness_kernel_shifted),
        a.posterize.augmentation((0, 4), randomly_negate=False, mag_to_param=a.poster_mask_uint8),
        a.solarize.augmentation((0, 256), randomly_negate=False),
        a.solarize_add.augmentation((0, 110), randomly_negate=False),
    ]
    augmentations_by_name = {x.name: x for x in (*with_ranges, a.invert, a.equalize, a.auto_contrast)}

    def entry(text: str) -> tuple[Augmentation, float, int | None]:
        """The augmentation, probability and bin (None: without a magnitude) of a step."""
        augmentation, probability, *magnitude = text.split()
        return augmentations_by_name[augmentation], float(probability), int(magnitude[0]) if magnitude else None

    return Policy(name, num_magnitude_bins=11, sub_policies=[[entry(text) for text in row.split(";")] for row in rows])


if not TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(
        __name__,
        globals(),
        "apply_auto_augment auto_augment auto_augment_image_net get_image_net_policy get_reduced_cifar10_policy "
        "get_reduced_image_net_policy get_svhn_policy",
    )
