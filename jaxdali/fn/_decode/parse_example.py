"""parse_example: the features of TensorFlow's examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Unpack

import numpy as np

from ..._core.building import add
from ..._core.context import HostContext
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec, Value
from ...tfrecord import Feature
from .examples import ExampleOutputs, outputs_of


class ParseExample(HostOperator):
    """Parses a message of each sample. The fields are pairs of names and features."""

    name = "parse_example"
    features: tuple[tuple[str, Feature], ...]
    sequence_features: tuple[tuple[str, Feature], ...]

    @property
    def outputs(self) -> ExampleOutputs:
        return outputs_of(self.features, self.sequence_features)

    @property
    def num_outputs(self) -> int:
        return len(self.features) + len(self.sequence_features)

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        (data,) = specs
        if data.ndim != 1 or data.dtype != np.uint8:
            raise TypeError(
                f"the input must be serialized examples, 1-D uint8 (a message's bytes), got {data.ndim}-D {data.dtype}"
            )
        return self.outputs.specs

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        (data,) = values
        assert data.data is not None
        return self.outputs.parse(ctx, data.data)


@operator_function("parse_example")
def parse_example(
    serialized: Input,
    /,
    *,
    features: Mapping[str, Feature] | None = None,
    sequence_features: Mapping[str, Feature] | None = None,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> dict[str, DataNode]:
    """Parses TensorFlow's examples: messages ``tf.train.Example`` and ``tf.train.SequenceExample``. Not in DALI.

    Native code parses a batch in parallel. It needs no TensorFlow.

    Args:
      serialized: the messages, 1-D uint8, as readers and external_source give them. They are host values.
      features: the features to parse of an Example, or of the context of a SequenceExample, by their names:
        `tfrecord.FixedLenFeature`, `VarLenFeature`, `FixedLenSequenceFeature`, `RaggedFeature` or `LengthsFeature`.
      sequence_features: the feature lists to parse of a SequenceExample, by their names: `FixedLenSequenceFeature`,
        `VarLenFeature`, `RaggedFeature` or `LengthsFeature`.

    Returns:
      A dictionary by the names of both, host values: ``float32`` or ``int64`` for numbers, ``uint8[bytes]`` for one
      string, and ``uint8[n, longest]`` of layout "F*" for a list of strings, where zeros follow shorter ones.
      `decoders.image` makes a sequence of images of a list of encoded ones.

    Raises:
      ValueError: both dictionaries are empty or have a name in common, or a feature list can't have the feature.
      TypeError: the input is not 1-D uint8, or the features are no dictionaries of features.
      SampleError: a message is damaged, lacks a feature without a default, has another type or number of values than
        the feature, or has a feature list in place of a feature, or the other way round. It names the feature.

    Example:
      >>> example = fn.parse_example(records, features={"image": tfrecord.FixedLenFeature((), tfrecord.string),
      ...                                               "label": tfrecord.FixedLenFeature((), tfrecord.int64)})
      >>> images = fn.decoders.image(example["image"])
    """
    outputs = ExampleOutputs.of(features, sequence_features)
    op = ParseExample(features=outputs.features, sequence_features=outputs.sequence_features)
    nodes = add(op, serialized, device=device, name=name)
    return dict(zip(outputs.names, nodes if len(outputs.names) > 1 else [nodes], strict=True))
