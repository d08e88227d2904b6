"""An operation on images with a magnitude, which is divided into steps ("bins")."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import fn, types
from ..._core.building import is_node
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.kinds import device_named
from ..._pipeline.conditionals import converted
from ...fn._augmentation import taken


class _Unchanged:
    """Stands for a setting that is not passed: None is a value of settings. Signatures show it as "unchanged"."""

    def __repr__(self) -> str:
        return "unchanged"


_UNCHANGED: Any = _Unchanged()


@dataclasses.dataclass(frozen=True, eq=False)
class SignedBin:
    """A magnitude bin, and whether the magnitude is negated for each sample. See `signed_bin`.

    Attributes:
      bin: the bin, of all samples or per sample.
      random_sign: 1 if the magnitude is negated, else 0.
      signed_magnitude_idx: ``2 * bin + random_sign``.
    """

    bin: int | DataNode
    random_sign: DataNode
    signed_magnitude_idx: DataNode

    def __getitem__(self, i: int) -> SignedBin:
        """The signed bin of step `i` of a sequence of augmentations."""
        bin_of_step = self.bin if isinstance(self.bin, int) else self.bin[i]
        return SignedBin(bin_of_step, self.random_sign[i], self.signed_magnitude_idx[i])


def signed_bin(
    magnitude_bin: int | DataNode,
    random_sign: DataNode | None = None,
    seed: int | None = None,
    shape: Sequence[int] | None = None,
) -> SignedBin:
    """Makes a bin with a random sign, for augmentations that negate their magnitude at random. The sign is drawn once,
    before samples are split among augmentations.

    Args:
      magnitude_bin: number of the bin, from 0, of all samples or per sample.
      random_sign: 0 or 1 for each sample; None: it is drawn.
      seed: the seed for drawing.
      shape: the shape of the signs for each sample; with it, the result has an element for each step of a sequence.

    Raises:
      ArgumentError: the bin is neither a whole number nor a DataNode, or `random_sign` is given together with `seed` or
        `shape`.
    """
    if isinstance(magnitude_bin, bool) or not (isinstance(magnitude_bin, int) or is_node(magnitude_bin)):
        raise ArgumentError(f"magnitude_bin must be a whole number or a DataNode, got {magnitude_bin!r}")
    if random_sign is None:
        random_sign = fn.random.uniform(
            values=[0, 1],
            dtype=types.INT32,
            seed=-1 if seed is None else seed,
            shape=None if shape is None else tuple(shape),
        )
    elif seed is not None or shape is not None:
        raise ArgumentError("random_sign can't be given together with seed or shape, which are for drawing one")
    return SignedBin(magnitude_bin, random_sign, 2 * magnitude_bin + random_sign)


class Augmentation:
    """An operation on images whose parameter depends on a magnitude; made by the decorator `augmentation`.

    An argument that is None is not set; the property of its name has the default.

    Args:
      op: the function of the data and the parameter.
      mag_range: the magnitudes of the first and the last bin, or of all bins.
      randomly_negate: whether the magnitude is negated for a random half of the samples.
      mag_to_param: makes the parameter from a magnitude.
      param_device: where the parameter is: "cpu", "gpu", or "auto" for the place of the data.
      name: the name, in place of the function's.

    Attributes:
      op: the function.
    """

    def __init__(
        self,
        op: Callable[..., DataNode],
        mag_range: tuple[float, float] | np.ndarray | None = None,
        randomly_negate: bool | None = None,
        mag_to_param: Callable[[float], Any] | None = None,
        param_device: str | None = None,
        name: str | None = None,
    ):
        self._settings = {
            "mag_range": mag_range,
            "randomly_negate": randomly_negate,
            "mag_to_param": mag_to_param,
            "param_device": param_device,
            "name": name,
        }
        self.op = op
        positional, _, _ = _parameters(op)
        if len(positional) < 2:
            raise ArgumentError(
                f"an augmentation must take the data and a parameter by position, but {self.name} is {inspect.signature(op)}"
            )

    @property
    def mag_range(self) -> tuple[float, float] | np.ndarray | None:
        """The magnitudes of the first and the last bin, or of all bins; None: there are no magnitudes."""
        return self._settings["mag_range"]

    @property
    def randomly_negate(self) -> bool:
        """Whether the magnitude is negated for a random half of the samples."""
        return bool(self._settings["randomly_negate"])

    @property
    def mag_to_param(self) -> Callable[[float], Any]:
        """Function that makes the parameter from a magnitude."""
        return self._settings["mag_to_param"] or np.asarray

    @property
    def param_device(self) -> str:
        """Where the parameter is: "cpu", "gpu", or "auto" for the place of the data."""
        return device_named(self._settings["param_device"]) or "cpu"

    @property
    def name(self) -> str:
        """The function's name, unless another was given."""
        return self._settings["name"] or getattr(self.op, "__name__", type(self.op).__name__)

    def __repr__(self) -> str:
        settings = "".join(f", {k}={v!r}" for k, v in self._settings.items() if v is not None)
        return f"Augmentation({self.op!r}{settings})"

    def augmentation(
        self,
        mag_range: Any = _UNCHANGED,
        randomly_negate: Any = _UNCHANGED,
        mag_to_param: Any = _UNCHANGED,
        param_device: Any = _UNCHANGED,
        name: Any = _UNCHANGED,
        augmentation_cls: type[Augmentation] | None = None,
    ) -> Augmentation:
        """Returns the same operation with other settings. Settings that are not passed do not change."""
        changes = {
            "mag_range": mag_range,
            "randomly_negate": randomly_negate,
            "mag_to_param": mag_to_param,
            "param_device": param_device,
            "name": name,
        }
        return (augmentation_cls or type(self))(
            self.op, **{**self._settings, **{k: v for k, v in changes.items() if v is not _UNCHANGED}}
        )

    def __call__(
        self,
        data: DataNode,
        *,
        magnitude_bin: int | DataNode | SignedBin | None = None,
        num_magnitude_bins: int | None = None,
        **kwargs: Any,
    ) -> DataNode:
        """Applies the augmentation.

        Args:
          data: the samples.
          magnitude_bin: number of the bin, from 0, of all samples or per sample; or a `signed_bin`, which also tells
            for each sample whether the magnitude is negated.
          num_magnitude_bins: the number of bins.
          **kwargs: further arguments of the function; arguments that it does not take are ignored.

        Raises:
          ArgumentError: an argument that the function needs, the bin or their number is missing; or the parameters of
            the magnitudes differ in type or shape.
        """
        _, named, needed = _parameters(self.op)
        missing = [n for n in needed if n not in kwargs]
        if missing:
            raise MissingArgument(
                f"the augmentation {self.name} needs the argument {', '.join(missing)}", self, tuple(missing)
            )
        parameter = self._parameter(data, magnitude_bin, num_magnitude_bins)
        # `converted` makes `if` statements of the function work on DataNodes.
        return converted(self.op)(data, parameter, **{n: x for n, x in kwargs.items() if n in named})

    def accepts(self, name: str) -> bool:
        """Whether the function takes an argument of this name, besides data and parameter."""
        _, named, _ = _parameters(self.op)
        return name in named

    def _parameter(self, data: DataNode, magnitude_bin: Any, bins: int | None) -> Any:
        """The parameter of each sample, from its bin; None: the augmentation has no magnitudes.

        Args:
          magnitude_bin: an int, a DataNode of ints, a `SignedBin`, or None: it is not passed.
          bins: the number of bins; None: it is not passed.
        """
        magnitudes = self._magnitudes(bins)
        if magnitudes is None:
            return None
        if magnitude_bin is None:
            raise ArgumentError(f"the augmentation {self.name} has magnitudes: pass magnitude_bin")
        number = magnitude_bin.bin if isinstance(magnitude_bin, SignedBin) else magnitude_bin
        # Bins that come per sample are not known yet.
        if isinstance(number, int) and not 0 <= number < len(magnitudes):
            raise ArgumentError(
                f"the augmentation {self.name} has the magnitude bins 0 to {len(magnitudes) - 1}, got {number}"
            )
        if self.randomly_negate and not isinstance(magnitude_bin, SignedBin):
            warnings.warn(
                f"the augmentation {self.name} draws its own sign; pass magnitude_bin=signed_bin(...), made before samples are split "
                "among augmentations, so that one sign is drawn for all",
                stacklevel=3,
            )
            magnitude_bin = signed_bin(magnitude_bin)
        if self.randomly_negate:
            # Entry 2 * bin is the magnitude of a bin, and entry 2 * bin + 1 the negated one.
            magnitudes, index = (
                np.stack([magnitudes, -magnitudes], axis=1).reshape(-1),
                magnitude_bin.signed_magnitude_idx,
            )
        else:
            index = magnitude_bin.bin if isinstance(magnitude_bin, SignedBin) else magnitude_bin
        table = self._table(magnitudes)
        if isinstance(index, int):
            node = types.Constant(table[index], device="cpu")
        else:
            node = taken(table, index)  # the row of each sample
        on_device = data.device == "gpu" if self.param_device == "auto" else self.param_device == "gpu"
        return node.gpu() if on_device else node

    def _magnitudes(self, bins: int | None) -> np.ndarray | None:
        """The magnitude of each bin, f32[bins] or an array of the user; None: there are no magnitudes."""
        mag_range = self.mag_range
        if mag_range is None:
            return None
        if isinstance(mag_range, np.ndarray):
            if bins not in (None, len(mag_range)):
                raise ArgumentError(
                    f"the augmentation {self.name} has {len(mag_range)} magnitudes, but num_magnitude_bins is {bins}"
                )
            return mag_range
        if bins is None:
            raise ArgumentError(f"the augmentation {self.name} has a range of magnitudes: pass num_magnitude_bins")
        if not isinstance(mag_range, Sequence) or len(mag_range) != 2:
            raise ArgumentError(
                f"mag_range of {self.name} must be a pair or an array of all magnitudes, got {mag_range!r}"
            )
        return np.linspace(*mag_range, bins, dtype=np.float32)

    def _table(self, magnitudes: np.ndarray) -> np.ndarray:
        """The parameters of all magnitudes, stacked along the first axis. JAX's types have at most 32 bits."""
        parameters = [self.mag_to_param(m) for m in magnitudes]
        if any(is_node(x) or (isinstance(x, (list, tuple)) and any(map(is_node, x))) for x in parameters):
            raise ArgumentError(
                f"mag_to_param of {self.name} must return numbers or arrays, not DataNodes: it is called once for each bin"
            )
        arrays = [np.asarray(x) for x in parameters]
        kinds = dict.fromkeys((a.shape, a.dtype.name) for a in arrays)
        if len(kinds) > 1:
            raise ArgumentError(
                f"mag_to_param of {self.name} must return one shape and type for all magnitudes, got {', '.join(map(str, kinds))}"
            )
        table = np.stack(arrays)
        return table.astype({"int64": np.int32, "float64": np.float32}.get(table.dtype.name, table.dtype))


class MissingArgument(ArgumentError):
    """An argument that an augmentation's function needs was not given.

    Attributes:
      augmentation: the augmentation.
      names: the names of all such arguments.
    """

    def __init__(self, message: str, augmentation: Augmentation, names: tuple[str, ...]):
        super().__init__(message)
        self.augmentation = augmentation
        self.names = names


def check_used(augmentations: Sequence[Augmentation], arguments: Mapping[str, Any], caller: str):
    """Raises ArgumentError for arguments that none of the augmentations takes."""
    unused = [n for n in arguments if not any(a.accepts(n) for a in augmentations)]
    if unused:
        raise ArgumentError(f"{caller}: no augmentation takes the argument {', '.join(unused)}")


@functools.lru_cache(maxsize=1024)
def _parameters(op: Callable[..., Any]) -> tuple[tuple[str, ...], frozenset[str], tuple[str, ...]]:
    """Names of parameters of a function, in three groups.

    Returns:
      The positional ones; those that can be passed by name, without the first two; and those of these without a
      default.
    """
    parameters = list(inspect.signature(op).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p for p in parameters if p not in positional[:2] and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return (
        tuple(p.name for p in positional),
        frozenset(p.name for p in named),
        tuple(p.name for p in named if p.default is p.empty),
    )
