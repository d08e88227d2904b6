"""Replaces what a script needs and does not find: data, arguments of its command line, GPUs."""

from __future__ import annotations

import argparse
import contextlib
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import jaxdali

from .._core.graph import Node
from .._pipeline.pipeline import internals_of
from . import _made_up, _stand_ins

_READERS = ("file", "numpy", "tfrecord", "coco", "mxnet", "nemo_asr", "webdataset")


class Replaced:
    """Replaces functions of this process, so that a script gets made-up data where it has none.

    Args:
      data: the made-up data.

    Attributes:
      pipelines: all pipelines that the script has made.
    """

    def __init__(self, data: _made_up.Data):
        self._data = data
        self.pipelines: list[jaxdali.Pipeline] = []

    def install(self, torch: bool):
        """Installs the replacements. `torch`: also those for PyTorch, which the script uses."""
        self._note_pipelines()
        self._replace_functions()
        self._replace_command_line()
        if torch:
            self._replace_gpus()

    def _note_pipelines(self):
        """Lets `Pipeline.__init__` add each pipeline to `pipelines`."""
        original = jaxdali.Pipeline.__init__
        pipelines = self.pipelines

        @functools.wraps(original)
        def tracked(pipeline: Any, *args: Any, **kwargs: Any):
            original(pipeline, *args, **kwargs)
            if not any(p is pipeline for p in pipelines):
                pipelines.append(pipeline)

        jaxdali.Pipeline.__init__ = tracked  # pyright: ignore[reportAttributeAccessIssue]

    def _replace_command_line(self):
        """Makes the required arguments of command lines optional, with made-up values as defaults."""
        guesses = _made_up.Guesses(self._data)
        parse = argparse.ArgumentParser.parse_known_args

        # All methods that parse call this one.
        def parse_known_args(parser: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
            for action in parser._actions:
                if action.required:
                    action.required = False
                    if not action.option_strings:  # a positional argument
                        action.nargs = "?"
                    if action.default is None:
                        value = guesses.of(action.dest)
                        action.default = (
                            [value] if action.nargs in ("+", "*") and not isinstance(value, list) else value
                        )
            return parse(parser, args, namespace)

        argparse.ArgumentParser.parse_known_args = parse_known_args  # pyright: ignore[reportAttributeAccessIssue]

    def _replace_gpus(self):
        """Lets PyTorch's functions that describe the GPU work without one."""
        with contextlib.suppress(ImportError):
            import torch

            if not torch.cuda.is_available():
                torch.cuda.current_device = torch.cuda.current_stream = lambda *_: 0  # pyright: ignore[reportAttributeAccessIssue]
                torch.cuda.device_count = lambda: 1
                torch.cuda.set_device = lambda *_: None
                torch.Tensor.cuda = lambda tensor, *_, **__: tensor  # pyright: ignore[reportAttributeAccessIssue]

    def _replace_functions(self):
        """Gives readers made-up files if theirs do not exist, and `external_source` what its consumers need."""
        replaced: dict[Callable[..., Any], Callable[..., Any]] = {
            jaxdali.fn.external_source: self._external_source(jaxdali.fn.external_source)
        }
        for name in _READERS:
            for function in (getattr(jaxdali.fn.readers, name), getattr(jaxdali.fn, f"{name}_reader", None)):
                if function is not None:
                    replaced[function] = self._reader(f"readers.{name}", function)
        # The functions have several names, in modules and in the classes of `ops`: all are replaced.
        pending: list[Any] = [jaxdali.fn, jaxdali.ops]
        visited_ids = set()
        while pending:
            module = pending.pop()
            visited_ids.add(id(module))
            for name, x in [(n, getattr(module, n)) for n in dir(module) if not n.startswith("_")]:
                if (
                    isinstance(x, types.ModuleType)
                    and x.__name__.startswith(module.__name__)
                    and id(x) not in visited_ids
                ):
                    pending.append(x)
                elif isinstance(x, types.FunctionType) and x in replaced:
                    setattr(module, name, replaced[x])
                elif isinstance(x, type) and getattr(x, "function", None) in replaced:
                    x.function = staticmethod(replaced[x.function])  # pyright: ignore[reportAttributeAccessIssue]

    def _reader(self, operator: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a reader: its files that don't exist are replaced by made-up ones."""

        @functools.wraps(function)
        def reader(*args: Any, **kwargs: Any) -> Any:
            if not _stand_ins.stand_in_among(kwargs):
                kwargs = _made_up.reader_arguments(operator, kwargs, self._data)
            return function(*args, **kwargs)

        return reader

    def _external_source(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `external_source`: a source that is made up itself is replaced by one of the data that its consumers need."""

        @functools.wraps(function)
        def external_source(source: Any = None, num_outputs: int | None = None, **kwargs: Any) -> Any:
            """Calls `function`, with made-up batches if the source is made up or a stand-in."""
            if not isinstance(source, (_made_up.Source, _made_up.Settings, _stand_ins.StandIn)):
                return function(source, num_outputs, **kwargs)
            source_nodes: list[Any] = []  # filled below, before `made_up` is first called
            # `made_up` gives whole batches, and takes no argument. Options of other sources don't fit it.
            kwargs = {
                k: v for k, v in kwargs.items() if k not in ("cycle", "batch", "parallel", "batch_info", "blocking")
            }
            batches = iter(range(100))  # of an epoch, so that loops over the pipeline end

            def made_up() -> Any:
                """The next batch of all outputs: a tuple, or a single batch if `num_outputs` is None."""
                if next(batches, None) is None:
                    raise StopIteration
                batches_of_outputs = [self._fed(node, i, kwargs) for i, node in enumerate(source_nodes)]
                return batches_of_outputs[0] if num_outputs is None else tuple(batches_of_outputs)

            nodes = function(made_up, num_outputs, **kwargs)
            source_nodes += nodes if isinstance(nodes, (list, tuple)) else [nodes]
            return nodes

        return external_source

    def _fed(self, handle: Any, output: int, arguments: Mapping[str, Any]) -> list[np.ndarray]:
        """A batch for an output of an `external_source`.

        Args:
          handle: the output's node in the user's definition.
          output: its number.
          arguments: of the source.
        """
        for pipeline in reversed(self.pipelines):
            with contextlib.suppress(Exception):
                graph = internals_of(pipeline).graph
                node = graph.find(handle)
                if node is not None:
                    return self.batch(pipeline, node, output, arguments)
        return [_made_up.array(self._data.variant, i) for i in range(4)]

    def batch(
        self, pipeline: jaxdali.Pipeline, node: Node, output: int, arguments: Mapping[str, Any]
    ) -> list[np.ndarray]:
        """A batch of what the consumers of an `external_source` need.

        Args:
          node: the source, in the graph of the pipeline.
          output: the number of the output.
          arguments: of the source.
        """

        def of_output(name: str) -> Any:
            """An argument for this output; a list has one for each output."""
            x = arguments.get(name)
            return x[output] if isinstance(x, (list, tuple)) and len(x) > output else x

        dtype = of_output("dtype")  # negative: `NO_TYPE`
        kind = None if dtype is None or int(dtype) < 0 else jaxdali.types.to_numpy_type(dtype)
        consumers = _consumers(internals_of(pipeline).graph, node, output)
        count = pipeline.batch_size if pipeline.batch_size > 0 else 4
        return [
            _made_up.fed(consumers, of_output("layout"), kind, of_output("ndim"), self._data, i) for i in range(count)
        ]


def _consumers(graph: Any, node: Node, output: int) -> list[str]:
    """The operators that read an output, directly or behind operators that change little."""
    operators = []
    for consumer in graph.nodes:
        if any(x.node is node and x.index == output for x in consumer.inputs):
            operators += _consumers(graph, consumer, 0) if _made_up.passing(consumer.op.name) else [consumer.op.name]
    return operators
