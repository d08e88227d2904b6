"""The pipelines that are measured, and the images of a folder."""

from __future__ import annotations

import collections
import importlib
import importlib.util
import inspect
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .. import fn, types
from .._pipeline.pipeline import Pipeline
from .._pipeline.pipeline_def import pipeline_def
from ..fn.readers._file import FILE_FILTERS

Make = Callable[..., Pipeline]  # called as make(num_threads=..., batch_size=...)

_SUFFIXES = {f.removeprefix("*").casefold() for f in FILE_FILTERS} - {".flac", ".ogg", ".wav"}
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]  # of ImageNet's pixels


class UsageError(Exception):
    """The user's input can't be measured; the message says why."""


def find_images(folder: pathlib.Path) -> list[str]:
    """The image files in a folder and its subfolders, in order.

    Raises:
      UsageError: the folder does not exist, or has no images.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is {'no folder' if folder.exists() else 'not there'}")
    images, suffixes = [], collections.Counter[str]()
    for root, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        for name in sorted(files):
            suffix = os.path.splitext(name)[1].casefold()
            if suffix in _SUFFIXES:
                images.append(os.path.join(root, name))
            else:
                suffixes[suffix or "no suffix"] += 1
    if images:
        return images
    description = ", ".join(f"{n} with {suffix}" for suffix, n in suffixes.most_common(3))
    raise UsageError(
        f"{folder}: no images ({' '.join(sorted(_SUFFIXES))}); {f'it has files, {description}' if suffixes else 'it has no files'}"
    )


def imagenet_train(files: Sequence[str]) -> Make:
    """The usual training pipeline for ImageNet. The folders of the files are the labels. Files that can't be decoded
    are replaced and reported.
    """
    folders = {name: i for i, name in enumerate(sorted({os.path.dirname(f) for f in files}))}
    labels = [folders[os.path.dirname(f)] for f in files]

    @pipeline_def
    def define():
        jpegs, classes = fn.readers.file(files=list(files), labels=labels, random_shuffle=True, name="reader")
        images = fn.decoders.image_random_crop(jpegs, device="mixed", on_error="replace", replace_shape=(224, 224, 3))
        images = fn.resize(images, size=(224, 224))
        mirror = fn.random.coin_flip()
        images = fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="HWC", mean=MEAN, std=STD, mirror=mirror
        )
        return images, classes

    return define


def of_user(text: str, folder: str) -> Make:
    """The pipeline of a function `text`, MODULE:FUNCTION, where MODULE may be a file. The function gets the folder if
    it has a parameter without a default.

    Raises:
      UsageError: the function does not exist, or is not a pipeline definition.
    """
    module, colon, name = text.rpartition(":")
    if not (module and colon and name):
        raise UsageError(f"--pipeline must be MODULE:FUNCTION or FILE.py:FUNCTION, got {text!r}")
    function = getattr(_import_module(module), name, None)
    if not callable(function):
        raise UsageError(f"--pipeline {text}: {module} has no function {name!r}")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as e:
        raise UsageError(f"--pipeline {text}: {e}") from None
    needed = [
        p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) > 1:
        raise UsageError(
            f"--pipeline {text}: it may have only one parameter without a default, for the folder; got {', '.join(needed)}"
        )
    # Functions that are not decorated become pipeline definitions here.
    define: Any = function if "_is_pipeline_def" in vars(function) else pipeline_def(function)
    arguments_for_folder = [folder] if needed else []

    def make_pipeline(**pipeline_arguments: Any) -> Pipeline:
        pipeline = define(*arguments_for_folder, **pipeline_arguments)
        if not isinstance(pipeline, Pipeline):
            raise UsageError(
                f"--pipeline {text}: it must define a pipeline (see jaxdali.pipeline_def), and returned {type(pipeline).__name__}"
            )
        return pipeline

    return make_pipeline


def _import_module(name: str) -> Any:
    """Imports a module by its name or, if it ends with ".py", its path. Modules in the current directory are found.

    Raises:
      UsageError: it can't be imported.
    """
    sys.path.insert(0, os.getcwd())
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(pathlib.Path(name).stem, name)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    except (ImportError, OSError, SyntaxError) as e:
        raise UsageError(f"--pipeline: can't import {name}: {type(e).__name__}: {e}") from e
    finally:
        sys.path.remove(os.getcwd())
