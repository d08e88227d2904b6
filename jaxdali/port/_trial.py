"""Tries the pipelines of one file: ``python -m jaxdali.port._trial FILE REPORT FOLDER SECONDS [SKIPPED ...]``, which
`_check` starts.

It imports the file, makes up the arguments of each pipeline definition, builds the pipeline, and runs a batch. It
appends each result to the file REPORT, line by line, so that the progress is known if the process hangs or dies.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import json
import linecache
import os
import pathlib
import re
import signal
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jaxdali

from .._core.errors import OperatorError, SampleError, in_package
from .._pipeline.pipeline import internals_of
from . import _code, _made_up, _stand_ins
from ._reading import source
from ._replaced import Replaced


class _TooLong(BaseException):
    """The time limit for a pipeline is reached."""


@dataclasses.dataclass
class Result:
    """The result for a pipeline definition, or for the file.

    Attributes:
      name: of the definition; "" for the file.
      line: where it is defined.
      what: "runs", "fails" (although DALI supports it), or "untried": it could not be tried, or not with made-up
        arguments.
      text: the outputs, or the error.
      where: the user's line of the error; "" if it is unknown.
      made_up: the arguments that were made up.
      hints: further remarks.
    """

    name: str
    line: str
    what: str
    text: str
    where: str = ""
    made_up: str = ""
    hints: list[str] = dataclasses.field(default_factory=list)


class Trial:
    """The trials of one file.

    Args:
      path: the file, a script or a notebook.
      report: the file that events are appended to, as a JSON object in each line, see `_check`.
      folder: for made-up data.
      seconds: time limit for each pipeline, and for the import.
      skipped: names of definitions that are not tried: those that have a result from an earlier process.
    """

    def __init__(
        self, path: pathlib.Path, report: pathlib.Path, folder: pathlib.Path, seconds: float, skipped: Sequence[str]
    ):
        self._path, self._report, self._seconds, self._skipped = path.absolute(), report, seconds, skipped
        # `_line_name` makes the text for a line's number: in a notebook its cell and line.
        self._text, self._line_name = source(path)
        self._data = _made_up.Data(
            folder,
            sound=bool(re.search(r"decoders\.audio\b|\baudio_decoder\b|AudioDecoder|decoders\.Audio\b", self._text)),
        )
        self._replaced = Replaced(self._data)
        self._stand_ins: list[str] = []  # names of modules that are not installed
        self._tree = ast.parse(self._text)

    def run(self):
        """Tries all pipelines."""
        self._prepare()
        module = self._import()
        self._try_made(module)
        for name, line, make in self._definitions(module):
            if name not in self._skipped:
                self._say(begin=name, line=self._line_name(line))
                self._tell(self._try(name, line, make))
        for name, line, outer in _code.out_of_reach(self._tree):
            self._tell(
                Result(name, self._line_name(line), "untried", f"it is defined inside {outer}, which is not called")
            )
        self._say(end=True)

    def _say(self, **event: Any):
        """Appends an event to the report."""
        with self._report.open("a") as file:
            file.write(json.dumps(event) + "\n")

    def _tell(self, result: Result):
        """Reports a result, with short names for the folders of the made-up data and of the file."""
        for folder, short in ((f"{self._data.folder}/", "DATA/"), (f"{self._path.parent}/", "")):
            result.text, result.where = result.text.replace(folder, short), result.where.replace(folder, short)
            result.hints = [x.replace(folder, short) for x in result.hints]
        self._say(result=dataclasses.asdict(result))

    # --- the file -----------------------------------------------------------------------------------------------

    def _prepare(self):
        """Installs replacements for what is missing."""
        sys.argv = [str(self._path)]
        sys.path[:1] = [str(self._path.parent)]
        sys.meta_path.append(_stand_ins.Finder(self._path, self._stand_ins.append))
        _stand_ins.fill_gaps()
        # Tracebacks and `inspect` read the code from this cache, as that of a notebook is in no file. The entry is
        # (size, time, lines, name); one without a time is never checked against the file.
        linecache.cache[str(self._path)] = (
            len(self._text),
            None,
            self._text.splitlines(keepends=True),
            str(self._path),
        )
        self._replaced.install(torch="torch" in self._text)

    def _import(self) -> types.ModuleType:
        """Executes the file as a module. Returns it, with the variables that were set before an error, if there was one."""
        name, package = _code.module_name(self._path, self._tree)
        module = types.ModuleType(name)
        module.__file__ = str(self._path)
        module.__package__ = package
        if package:
            # The folder that contains the outermost package.
            sys.path.insert(0, str(self._path.parents[package.count(".") + 1]))
            with contextlib.suppress(Exception):
                importlib.import_module(package)
        sys.modules[name] = module
        self._say(begin="", line="")
        e = None
        try:
            with self._limited():
                exec(compile(self._tree, str(self._path), "exec"), vars(module))
        except (Exception, SystemExit, _TooLong) as raised:
            e = raised
        # Submodules of a module that is reported are left out.
        if self._stand_ins:
            self._say(
                stand_ins=sorted(
                    {m for m in self._stand_ins if m.partition(".")[0] not in self._stand_ins or "." not in m}
                )
            )
        # A script may end with `sys.exit()`, which is no failure.
        if e is not None and not (isinstance(e, SystemExit) and not e.code):
            self._tell(self._failed("", 1, e, guesses=None))
        return module

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        """Raises `_TooLong` inside the block when the time limit is reached.

        The event "alive" restarts the clock of the process that waits for this one, see `_check._events`.
        """

        def stop(*_: Any):
            raise _TooLong

        self._say(alive=True)
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    # --- definitions --------------------------------------------------------------------------------------------

    def _try_made(self, module: types.ModuleType):
        """Tries the pipelines that the file makes when it is imported."""
        pipelines = list(self._replaced.pipelines)
        for pipeline in pipelines:
            names = [k for k, v in vars(module).items() if v is pipeline]
            if not names or names[0] in self._skipped:
                continue
            line = _code.line_of(self._tree, names[0])
            self._say(begin=names[0], line=self._line_name(line))
            if internals_of(pipeline).session.built:
                self._tell(
                    Result(
                        names[0],
                        self._line_name(line),
                        "runs",
                        "the file builds it itself",
                        hints=self._round_trips(pipeline),
                    )
                )
            else:
                self._tell(self._run(names[0], line, [pipeline], guesses=None))

    def _definitions(self, module: types.ModuleType) -> Iterator[tuple[str, int, Callable[[_made_up.Guesses], Any]]]:
        """Yields the name and line of each definition, and a function that makes its pipeline.

        Definitions are functions and methods with `pipeline_def`, classes of pipelines, and functions and classes that
        make pipelines inside.
        """
        visited_ids: set[int] = set()

        def once(x: Any) -> bool:
            """Whether an object is new: one with several names is tried under the first."""
            new = id(x) not in visited_ids
            visited_ids.add(id(x))
            return new

        for name, x in list(vars(module).items()):
            if (
                isinstance(x, types.FunctionType)
                and getattr(x, "_is_pipeline_def", False)
                and self._is_own(inspect.unwrap(x))
                and once(x)
            ):
                yield name, _code.line_of_function(self._tree, x), functools.partial(self._of_function, x)
            elif (
                isinstance(x, type) and issubclass(x, jaxdali.Pipeline) and x.__module__ == module.__name__ and once(x)
            ):
                # A class that others derive from is tried only if it defines a graph itself.
                base = any(issubclass(y, x) and y is not x for y in vars(module).values() if isinstance(y, type))
                if not (base and "define_graph" not in vars(x)):
                    yield name, _code.line_of(self._tree, name), functools.partial(self._of_call, x, name)
            elif isinstance(x, type) and x.__module__ == module.__name__:
                for key, member in vars(x).items():
                    function = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
                    if getattr(function, "_is_pipeline_def", False) and once(function):
                        line = _code.line_of_function(self._tree, function)
                        make = (
                            self._of_function
                            if isinstance(member, staticmethod)
                            else functools.partial(self._of_method, x)
                        )
                        yield f"{name}.{key}", line, functools.partial(make, function)
        # Last, functions and classes that make pipelines inside.
        for node in self._tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and _code.makes_pipelines(node):
                x = vars(module).get(node.name)
                is_pipeline = isinstance(x, type) and issubclass(x, jaxdali.Pipeline)
                if x is not None and not is_pipeline and not getattr(x, "_is_pipeline_def", False):
                    yield node.name, node.lineno, functools.partial(self._of_call, x, node.name)

    def _is_own(self, function: Callable[..., Any]) -> bool:
        """Whether a function is defined in this file, not imported."""
        return function.__code__.co_filename == str(self._path)

    def _of_method(self, owner: Any, factory: Any, guesses: _made_up.Guesses) -> Any:
        """Calls the factory that `pipeline_def` made from a method, with an object if one can be made."""
        try:
            owned = self._of_call(owner, owner.__name__, guesses)
        except Exception:  # there is no object; perhaps the definition needs none
            return self._of_function(factory, guesses)
        return self._of_function(factory, guesses, owned)

    def _of_function(self, factory: Any, guesses: _made_up.Guesses, owned: Any = None) -> Any:
        """Calls a factory that `pipeline_def` made. `owned`: the object whose method it is; None: it has none.

        Arguments of `Pipeline` are as the file passes them, else as in the decorator, else the numbers below.
        """
        function = inspect.unwrap(factory)
        constant_arguments = self._written(function.__name__)
        arguments = self._arguments(function, guesses, constant_arguments, bound=owned is not None)
        for name, value in (("batch_size", 4), ("num_threads", 2), ("device_id", None)):
            if name not in arguments and name not in factory._pipeline_kwargs:
                arguments[name] = constant_arguments.get(name, value)
        arguments |= {
            k: v
            for k, v in constant_arguments.items()
            if k in inspect.signature(jaxdali.Pipeline).parameters and k not in arguments
        }
        return _called(
            factory if owned is None else functools.partial(factory, owned),
            _code.positional_only(function),
            arguments,
            guesses,
        )

    def _of_call(self, function: Any, name: str, guesses: _made_up.Guesses) -> Any:
        """Calls a class or a function that makes pipelines, and returns the object or the result.

        Args:
          name: by which the file calls it.
          guesses: makes up the missing arguments, and records them.
        """
        target = function.__init__ if isinstance(function, type) else function
        arguments = self._arguments(target, guesses, self._written(name), bound=isinstance(function, type))
        if isinstance(function, type) and target is jaxdali.Pipeline.__init__:
            arguments = {"batch_size": 4, "num_threads": 2, "device_id": None} | arguments
        return _called(function, _code.positional_only(target), arguments, guesses)

    def _arguments(
        self, function: Any, guesses: _made_up.Guesses, known: Mapping[str, Any], bound: bool = False
    ) -> dict[str, Any]:
        """Arguments of a function: those that the file itself passes, otherwise made-up ones.

        Args:
          guesses: makes up arguments, and records them.
          known: constants that the file passes by name, see `_written`.
          bound: whether the first parameter is `self`, which gets no argument.
        """
        signature = inspect.signature(function)
        names = list(signature.parameters)
        skipped = names[:1] if bound else []
        node = _code.code_of(self._tree, function)
        arguments = {n: v for n, v in known.items() if n in names and n not in skipped}
        for p in _made_up.needed(signature):
            if p.name not in skipped and p.name not in arguments:
                annotation = None if p.annotation is p.empty else p.annotation
                arguments[p.name] = guesses.of(
                    p.name,
                    annotation,
                    _code.passed_on_as(node, p.name),
                    has_attributes=_code.has_attributes(node, p.name),
                )
        # A function with **kwargs gets the keys that the file reads from a dict of that name.
        for p in signature.parameters.values():
            if p.kind is p.VAR_KEYWORD:
                for key in _code.keys_read(self._tree, p.name):
                    if key not in names:
                        arguments.setdefault(key, guesses.of(key))
        return arguments

    def _written(self, name: str) -> dict[str, Any]:
        """The keyword arguments that the file calls a function with, if they are constants."""
        constants: dict[str, Any] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
                for k in node.keywords:
                    with contextlib.suppress(ValueError):
                        if k.arg is not None and k.arg not in constants:
                            value = ast.literal_eval(k.value)
                            # A path of the script's author does not exist here.
                            if not isinstance(value, str) or "/" not in value:
                                constants[k.arg] = value
        return constants

    def _try(self, name: str, line: int, make: Callable[[_made_up.Guesses], Any]) -> Result:
        """The best result of a definition. It is tried with each variant of arrays, and with a flat folder, if it uses them.

        Args:
          make: makes the pipeline with these guesses of arguments.
        """
        best: Result | None = None
        # `used`: whether the last trial used data of the variant; `used_root`: whether one used the data set's folder.
        used = self._data.used_root = False
        for variant, flat in [*((v, False) for v in self._data.variants), (self._data.variants[0], True)]:
            self._data.variant, self._data.used_variant, self._data.flat = variant, False, flat
            if best is not None and not (self._data.used_root if flat else used):
                continue
            result = self._try_once(name, line, make)
            used = self._data.used_variant
            if best is None or result.what == "runs" or _how_far(result) > _how_far(best):
                best = result
            if result.what == "runs" or result.text.startswith("it is still running"):
                break
        assert best is not None
        if best.what == "fails" and used:
            best = dataclasses.replace(
                best,
                what="untried",
                hints=["it gets made-up arrays of any kind: nothing says which it wants", *best.hints],
            )
        return best

    def _try_once(self, name: str, line: int, make: Callable[[_made_up.Guesses], Any]) -> Result:
        """Makes and runs the pipelines of a definition, with the current kind of data.

        Args:
          name, line: of the definition.
          make: makes its pipelines with these guesses of arguments.
        """
        ids_before = {id(p) for p in self._replaced.pipelines}
        guesses = _made_up.Guesses(self._data)
        try:
            with self._limited():
                result = make(guesses)
                pipelines = [p for p in self._replaced.pipelines if id(p) not in ids_before]
                if isinstance(result, jaxdali.Pipeline) and not any(p is result for p in pipelines):
                    pipelines.append(result)
                if not pipelines:
                    return Result(
                        name,
                        self._line_name(line),
                        "untried",
                        "it makes no pipeline with the arguments made up",
                        made_up=_shown(guesses),
                    )
            return self._run(name, line, pipelines, guesses)
        except (Exception, SystemExit, _TooLong) as e:
            return self._failed(name, line, e, guesses)

    def _run(
        self, name: str, line: int, pipelines: Sequence[jaxdali.Pipeline], guesses: _made_up.Guesses | None
    ) -> Result:
        """Builds pipelines and runs a batch, unless an iterator has done so. `guesses`: None if no argument was made up."""
        location = self._line_name(line) if line else ""
        outputs: list[str] = []
        hints: list[str] = []
        try:
            with self._limited(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for pipeline in pipelines:
                    # An iterator over the pipeline holds its lease, and has made its first batch.
                    if internals_of(pipeline).session.lease is None:
                        pipeline.build()
                        self._feed(pipeline)
                        outputs += [_described(x) for x in pipeline.run()]
                    else:
                        outputs.append("its iterator's first batch")
                    hints += self._round_trips(pipeline)
        except (Exception, SystemExit, _TooLong) as e:
            return self._failed(name, line, e, guesses)
        finally:
            for pipeline in pipelines:
                with contextlib.suppress(Exception):
                    internals_of(pipeline).session.close()
        return Result(name, location, "runs", ", ".join(outputs) or "no outputs", hints=hints, made_up=_shown(guesses))

    def _feed(self, pipeline: jaxdali.Pipeline):
        """Feeds the data that the user's code would feed."""
        if internals_of(pipeline).setups:
            return
        executor = internals_of(pipeline).session.executor
        assert executor is not None
        for node in internals_of(pipeline).graph.nodes:
            if node.op.name == "external_source" and node.id in executor.sources and executor.sources[node.id].fed:
                arguments = dict(node.call.arguments) if node.call is not None else {}
                for _ in range(4):  # as many batches as are made ahead
                    pipeline.feed_input(
                        node.name, self._replaced.batch(pipeline, node, 0, arguments), layout=arguments.get("layout")
                    )

    def _round_trips(self, pipeline: jaxdali.Pipeline) -> list[str]:
        """Remarks on steps of the host that wait for a program's results in each batch. Without an executor there are none."""
        executor = internals_of(pipeline).session.executor
        if executor is None:
            return []
        plan, remarks = executor.plan, []
        for step in plan.steps:
            if step.phase >= 0 and (refs := plan.fetched(step)):
                operators = ", ".join(dict.fromkeys(plan.maker(r).node.op.name for r in refs))
                remarks.append(
                    f"line {self._place(step.node.where)}: {step.node.op.name} needs on the host what {operators} makes in the compiled "
                    "program: a round trip in each batch"
                )
        return remarks

    # --- what went wrong ----------------------------------------------------------------------------------------

    def _place(self, where: str) -> str:
        """Shortens ``file:line`` to the line if it is in this file."""
        file, _, number = where.rpartition(":")
        return self._line_name(int(number)) if number.isdigit() and file == str(self._path) else where

    def _failed(self, name: str, line: int, e: BaseException, guesses: _made_up.Guesses | None) -> Result:
        """The result for an error in importing, making or running a pipeline.

        It is "fails" only if jaxdali lacks something of DALI, or if an error of the package itself has no other likely
        cause: made-up data or arguments, a module that is not installed, or the script's own code ("untried").

        Args:
          name, line: of the definition; ("", 1) for the file.
          guesses: the arguments that were made up; None: there were none.
        """
        frames = list(traceback.walk_tb(e.__traceback__))
        files = [frame.f_code.co_filename for frame, _ in frames]
        user_frames = [(f, number) for (_, number), f in zip(frames, files) if _stand_ins.is_users(f)]
        location = self._place(f"{user_frames[-1][0]}:{user_frames[-1][1]}") if user_frames else ""
        if isinstance(e, OperatorError):
            location = self._place(e.where)
        elif not location and (line_in_text := re.search(r"\b(?:created|called) at (\S+:\d+)", str(e))):
            location = self._place(line_in_text[1])
        result = Result(name, self._line_name(line) if line else "", "untried", "", location, _shown(guesses))
        text = (
            str(e)
            if isinstance(e, (OperatorError, ValueError, NotImplementedError)) and str(e)
            else f"{type(e).__name__}: {e}"
        )
        result.text = text
        package_frames = [
            frame
            for frame, f in zip((frame for frame, _ in frames), files)
            if in_package(f) and f"{os.sep}port{os.sep}" not in f
        ]
        is_raised_in_package = bool(files) and in_package(files[-1]) and f"{os.sep}port{os.sep}_trial" not in files[-1]
        # The first frame is this class's own.
        stand_in = next(
            filter(None, (_stand_ins.stand_in_among(dict(frame.f_locals)) for frame, _ in reversed(frames[1:]))), ""
        )
        if isinstance(e, _TooLong):
            result.text = f"it is still running after {self._seconds:g} s"
        elif isinstance(e, SystemExit):
            result.text = f"it ends the program: {type(e).__name__}({e.code!r})"
        elif _not_here(e):
            result.what = "fails"
        elif stand_in:
            result.text = f"it needs {stand_in}, of a module that is not installed ({text})"
        elif isinstance(e, (SampleError, OSError, StopIteration, EOFError)) or (
            isinstance(e, OperatorError) and e.operator.startswith(("readers.", "io.file."))
        ):
            result.text = f"with made-up data: {text}"
        # An OperatorError without a cause is the package's own, wherever it is raised; otherwise user code raised it.
        elif not is_raised_in_package and not (isinstance(e, OperatorError) and e.__cause__ is None):
            result.text = (
                f"the script's own code, with made-up arguments: {text}" if not package_frames or user_frames else text
            )
        elif guesses is not None and guesses.unsure:
            result.hints.append(f"made up without knowing what they are: {', '.join(guesses.unsure)}")
        else:
            result.what = "fails"
            result.hints.append(
                "where DALI takes it, jaxdali should: please report the message and the lines around it"
            )
        return result


def _how_far(result: Result) -> int:
    """The line of an error in the file, 0 for others. Of several failures the one with the last line is reported."""
    return int(result.where) if result.where.isdigit() else 0


def _not_here(e: BaseException) -> bool:
    """Whether the message says that jaxdali lacks something that DALI has."""
    return isinstance(e, (AttributeError, ImportError, NotImplementedError)) and bool(
        re.search(
            "not in jaxdali|not there yet|neither here nor in DALI|^module 'jaxdali|jaxdali.ops has no class", str(e)
        )
    )


def _described(batch: Any) -> str:
    """The type and the smallest and largest shape of a batch's samples, such as "uint8 (4, 4, 3) to (9, 9, 3)"."""
    shapes = {tuple(batch[i].shape()) for i in range(len(batch))}
    kind = batch.dtype.name.lower()
    return f"{kind} {min(shapes)}" + (f" to {max(shapes)}" if len(shapes) > 1 else "")


def _shown(guesses: _made_up.Guesses | None) -> str:
    """The made-up arguments as text, "name=value, ..."; "" if there are none."""
    if guesses is None:
        return ""

    def text(x: Any) -> str:
        if isinstance(x, (_made_up.Settings, _made_up.Source)):
            return f"made-up {type(x).__name__.lower()}"
        if isinstance(x, list) and len(x) > 4:
            return f"[{x[0]!r}, ...]"
        return os.path.basename(x) if isinstance(x, str) and os.sep in x else repr(x)

    return ", ".join(f"{name}={text(x)}" for name, x in guesses.made.items())


def _called(function: Any, positional: Sequence[str], arguments: dict[str, Any], guesses: _made_up.Guesses) -> Any:
    """Calls a function.

    An argument that it refuses is removed, and it is called again. If it passes on ``**kwargs``, arguments that are
    missing further down are made up. The messages of TypeErrors tell which.

    Args:
      positional: names of its positional-only parameters.
      arguments: values by name, of these parameters as well.
      guesses: makes up further arguments, and records them.
    """
    arguments = dict(arguments)
    first = [arguments.pop(p) for p in positional if p in arguments]
    hands_on = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())
    for _ in range(20):  # each time some arguments are removed or added
        try:
            return function(*first, **arguments)
        except TypeError as e:
            unexpected = re.search(r"unexpected (?:keyword )?argument '(\w+)'", str(e))
            if unexpected is not None and unexpected[1] in arguments:
                del arguments[unexpected[1]]
                continue
            lacking = re.findall(r"'(\w+)'", str(e)) if hands_on and re.search(r"missing \d+ required", str(e)) else []
            if not lacking or not set(lacking).isdisjoint(arguments):
                raise
            arguments |= {name: guesses.of(name) for name in lacking}
    return function(*first, **arguments)


if __name__ == "__main__":
    file, report, folder, seconds, *skipped = sys.argv[1:]
    Trial(pathlib.Path(file), pathlib.Path(report), pathlib.Path(folder), float(seconds), skipped).run()
    os._exit(0)  # the script may have left threads
