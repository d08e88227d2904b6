"""The worker process that reads items of a user's data set, and the form in which it sends them.

This file imports nothing from the package: a process that runs it by path (see `processes.py`) needs only NumPy, not
JAX.
"""

import collections.abc
import contextlib
import os
import pickle
import signal
import socket
import sys
import tempfile
import traceback
from multiprocessing import reduction

import numpy as np

SHARED = 1 << 14  # arrays with at least this many bytes go through shared memory instead of the pipe
NUMBERS = "?bBhHiIlLqQefd"  # NumPy's codes of the types that JAX has: not longdouble, which is of kind "f"
ALIGNMENT = 64  # bytes: each array begins at a multiple in the file


def leaves(item, metadata=()):
    """The values of an item: (keys, arrays, objects). Keys are the names of the arrays in a dictionary, the length of a
    tuple, or None for a single value.

    Args:
      item: the item.
      metadata: keys of a dictionary whose values are given unchanged, as objects.

    Raises:
      TypeError: a value is not an array, a number, a string or bytes.
      KeyError: a key of `metadata` is missing.
    """
    if metadata and not isinstance(item, collections.abc.Mapping):
        raise TypeError(
            f"there is no metadata {metadata[0]!r}: an item is a dictionary if it has keys, got {type(item).__name__}"
        )
    if isinstance(item, collections.abc.Mapping):
        values = {k: x for k, x in item.items() if k not in metadata}
        return tuple(values), [_array(x, f"key {k!r}") for k, x in values.items()], tuple(item[k] for k in metadata)
    if isinstance(item, tuple):
        return len(item), [_array(x, f"value {k}") for k, x in enumerate(item)], ()
    return None, [_array(item, "it")], ()


def _array(x, subject):
    """A value of an item as an array. Raises TypeError for values that are none.

    Args:
      subject: the value in the words of the message, such as "key 'image'".
    """
    if type(x) is np.ndarray and x.dtype.char in NUMBERS and x.dtype.isnative:
        return x
    if _is_undecoded(x):
        if x["bytes"] is None:
            raise TypeError(
                f"{subject} has no bytes, but the path {x['path']!r}: the data set must read that file, or be "
                '{"path": paths, ...}, whose files fn.io.file.read reads'
            )
        x = x["bytes"]
    if isinstance(x, str):
        x = x.encode()
    if _is_bytes(x):
        return np.frombuffer(x, np.uint8)
    if isinstance(x, (list, tuple)) and x and all(_is_bytes(e) or _is_undecoded(e) for e in x):
        return file_rows([_array(e, subject) for e in x])
    if (torch := sys.modules.get("torch")) is not None and isinstance(x, torch.Tensor):
        return tensor_array(x, torch, subject)
    if torch is not None and isinstance(x, (list, tuple)):
        x = [tensor_array(e, torch, subject) if isinstance(e, torch.Tensor) else e for e in x]
    if isinstance(x, (list, tuple)) and x and all(map(_is_vector, x)):
        return file_rows(x)
    if x is None or isinstance(x, collections.abc.Mapping):
        raise TypeError(_refusal(x, subject))
    try:
        array = np.asarray(x)
    except ValueError:  # lists of different lengths
        raise TypeError(_refusal(x, subject)) from None
    if array.dtype.kind in "SU" and array.ndim == 0:  # a string of NumPy
        return _array(array.item(), subject)
    # Types such as bfloat16 are of kind "f" or "V", too; longdouble has the code "g", and bytes of no type and structured
    # arrays "V".
    if array.dtype.char not in NUMBERS and (array.dtype.kind not in "fV" or array.dtype.char in "gV"):
        raise TypeError(_refusal(x, subject, array.dtype))
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def file_rows(files):
    """The bytes of files as ``uint8[files, longest]``, with zeros after shorter ones."""
    rows = np.zeros((len(files), max(map(len, files), default=0)), np.uint8)
    for row, file in zip(rows, files):
        row[: len(file)] = file
    return rows


def _is_bytes(x):
    return isinstance(x, (bytes, bytearray, memoryview))


def _is_vector(x):
    """Whether a value is an array of bytes, such as ``np.fromfile(path, np.uint8)``."""
    return isinstance(x, np.ndarray) and x.dtype == np.uint8 and x.ndim == 1


def _is_undecoded(x):
    """Whether a value is an undecoded image or sound of Hugging Face's datasets."""
    return isinstance(x, dict) and x.keys() == {"bytes", "path"}


def tensor_array(x, torch, subject):
    """A tensor of PyTorch as an array: without its gradient, and on the host."""
    if x.layout is not torch.strided:
        raise TypeError(f"{subject} is a sparse tensor: x.to_dense() makes a dense one of it")
    x = x.detach().cpu().resolve_conj().resolve_neg()
    if x.dtype is torch.bfloat16:
        import ml_dtypes  # it comes with JAX

        # NumPy itself has no such type, so PyTorch hands over the bits as another one.
        return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return _array(x.numpy(), subject)


def _is_image(x):
    """Whether a value is an image of Pillow."""
    return hasattr(x, "__array_interface__") and hasattr(x, "getbands")


def _refusal(x, subject, dtype=None):
    """The message about a value that is no array, with a remedy.

    Args:
      dtype: the type that NumPy's array of the value has; None: NumPy makes no array of it.
    """
    if x is None:
        description, remedy = "None", "leave it out, or give a number or an empty string"
    elif isinstance(x, collections.abc.Mapping):
        description, remedy = (
            f"a dictionary with the keys {[*x]}",
            "flatten it, so that each of its values is one of the item",
        )
    elif isinstance(x, (list, tuple)) and any(isinstance(e, collections.abc.Mapping) for e in x):
        description, remedy = (
            f"a {type(x).__name__} of dictionaries",
            "flatten it, e.g. to an array for each of their keys",
        )
    elif isinstance(x, (list, tuple)) and any(_is_image(e) for e in x):
        description, remedy = f"a {type(x).__name__} of images", "give the bytes of their files, as a list of bytes"
    elif isinstance(x, list) and subject == "it":
        description, remedy = "a list of different things", "return a tuple for several values"
    elif isinstance(x, (list, tuple)) and dtype is None:
        description, remedy = (
            f"a {type(x).__name__} whose entries differ in length",
            "give all entries one length, or give several values",
        )
    elif dtype is not None and (dtype.kind in "Mm" or hasattr(x, "isoformat")):
        description, remedy = f"a date or time ({type(x).__name__})", "convert it to a number or a string"
    elif dtype is not None and dtype.kind in "SU":
        description, remedy = (
            f"several strings ({type(x).__name__} of dtype {dtype})",
            "join them, or give their numbers",
        )
    else:
        description, remedy = f"{type(x).__name__} of dtype {dtype}", "convert it in __getitem__"
    key = subject.removeprefix("key ")
    unchanged = f"metadata=[{key}]" if key != subject else "metadata=[...], for items that are dictionaries,"
    return f"{subject} must be an array, a number, a string or bytes, got {description}: {remedy}; {unchanged} gives it as it is"


def read(datasets, item, metadata=()):
    """Reads an item, (number of the data set, index in it), and returns its `leaves`.

    If that raises an exception, returns a string: the exception with its traceback in user code.
    """
    try:
        dataset_index, i = item
        return leaves(datasets[dataset_index][i], metadata)
    except Exception as e:
        frames = traceback.extract_tb(e.__traceback__)
        while frames and frames[0].filename == __file__:  # this file's own frames come first
            del frames[0]
        stack = "".join(traceback.format_list(frames)).rstrip()
        return f"{type(e).__name__}: {e}" + (f"\nTraceback (most recent call last):\n{stack}" if stack else "")


def main(connection):
    """Runs the worker: reads the requested lists of items until the connection ends.

    The first message has the pickled data sets. It is answered by ``("ready", None)``, or by ``("failed", traceback)``.
    Each request is answered by ``("rows", rows)``, with the result of `read` for each item, or by ``("file", rows)``,
    where the arrays are in an unnamed file, and rows have their (dtype, shape, position).

    The descriptor of the file follows the answer. The file vanishes however the processes end. (The descriptor is sent
    without multiprocessing's functions: from Python 3.14 on, these wait for an acknowledgement, in whose place the next
    request may come.)
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    try:
        try:
            datasets, metadata = pickle.loads(connection.recv_bytes())
        except Exception:
            connection.send(("failed", traceback.format_exc()))
            return
        connection.send(("ready", None))
        while True:
            rows = [read(datasets, item, metadata) for item in connection.recv()]
            # A row is (keys, arrays, objects), or the text of an error.
            arrays = [a for row in rows if not isinstance(row, str) for a in row[1]]
            result = _write_file(rows) if sum(a.nbytes for a in arrays) >= SHARED else None
            if result is None:
                _send(connection, "rows", rows)
                continue
            file, rows_in_file = result
            with file:
                if _send(connection, "file", rows_in_file):
                    with socket.socket(fileno=os.dup(connection.fileno())) as channel:
                        socket.send_fds(channel, [b"f"], [file.fileno()])  # a descriptor comes with at least a byte
    except (EOFError, BrokenPipeError, ConnectionError):  # the parent has ended, or closed the connection
        pass


def _send(connection, kind, rows):
    """Sends rows, or an error in place of each row if an object among them can't be pickled. Returns whether the rows
    were sent.
    """
    try:
        try:
            answer = reduction.ForkingPickler.dumps((kind, rows))
        except Exception:
            if "cloudpickle" not in sys.modules:
                raise
            # Objects of classes that came to this process by value.
            answer = sys.modules["cloudpickle"].dumps((kind, rows))
    except Exception as e:
        connection.send(
            ("rows", [f"its metadata can't be sent by the process that read it: {type(e).__name__}: {e}"] * len(rows))
        )
        return False
    connection.send_bytes(answer)
    return True


def _memory_file():
    """A file without a name: in memory, or among temporary files where the operating system has none in memory
    (macOS).
    """
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("jaxdali"), "wb")
    return tempfile.TemporaryFile()


def _write_file(rows):
    """(a file with the arrays, rows with (dtype, shape, position) in place of arrays); None if memory does not
    suffice.
    """
    rows_in_file, position = [], 0
    try:
        file = _memory_file()
    except OSError:
        return None
    try:
        for row in rows:
            if isinstance(row, str):
                rows_in_file.append(row)
                continue
            keys, arrays, objects = row
            extents = []
            for a in arrays:
                position += file.write(b"\0" * (-position % ALIGNMENT))
                extents.append((a.dtype, a.shape, position))
                position += file.write(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data)
            rows_in_file.append((keys, extents, objects))
        file.flush()
    except OSError:
        with contextlib.suppress(OSError):  # closing would write the rest
            file.close()
        return None
    return file, rows_in_file


if __name__ == "jaxdali source worker":
    main(connection)  # noqa: F821  # pyright: ignore[reportUndefinedVariable]  the parent process provides it
