"""The process that reads items of a user's data set, and the form in which it sends them.

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
ALIGNMENT = 64


def leaves(item, metadata=()):
    """An item as (keys, arrays, objects). The keys are those of a dictionary, the length of a tuple, or None for a
    single value.

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
        rest = {k: x for k, x in item.items() if k not in metadata}
        return tuple(rest), [_array(x, f"key {k!r}") for k, x in rest.items()], tuple(item[k] for k in metadata)
    if isinstance(item, tuple):
        return len(item), [_array(x, f"value {k}") for k, x in enumerate(item)], ()
    return None, [_array(item, "it")], ()


def _array(x, what):
    if isinstance(x, dict) and x.keys() == {"bytes", "path"}:  # an undecoded image or sound in Hugging Face's datasets
        if x["bytes"] is None:
            raise TypeError(f"{what} has no bytes, but the path {x['path']!r}: the data set must read that file")
        x = x["bytes"]
    if isinstance(x, str):
        x = x.encode()
    if isinstance(x, (bytes, bytearray, memoryview)):
        return np.frombuffer(x, np.uint8)
    if (torch := sys.modules.get("torch")) is not None and isinstance(x, torch.Tensor):
        return _of_tensor(x, torch, what)
    if torch is not None and isinstance(x, (list, tuple)):
        x = [_of_tensor(e, torch, what) if isinstance(e, torch.Tensor) else e for e in x]
    if x is None or isinstance(x, collections.abc.Mapping):
        raise TypeError(_refusal(x, what))
    try:
        array = np.asarray(x)
    except ValueError:  # lists of different lengths
        raise TypeError(_refusal(x, what)) from None
    if array.dtype.kind in "SU" and array.ndim == 0:
        return _array(array.item(), what)
    if array.dtype.kind not in "biufV" or array.dtype.names is not None:
        raise TypeError(_refusal(x, what, array.dtype))
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def _of_tensor(x, torch, what):
    """A tensor of PyTorch as an array: without its gradient, and on the host."""
    if x.layout is not torch.strided:
        raise TypeError(f"{what} is a sparse tensor: x.to_dense() makes a dense one of it")
    x = x.detach().cpu().resolve_conj().resolve_neg()
    if x.dtype is torch.bfloat16:
        import ml_dtypes  # it comes with JAX

        return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return _array(x.numpy(), what)


def _refusal(x, what, dtype=None):
    """Says why a value is no array, and what to do about it. `dtype`: that of NumPy's array of it; None: NumPy makes
    none.
    """
    if x is None:
        form, remedy = "None", "leave it out, or give a number or an empty string"
    elif isinstance(x, collections.abc.Mapping):
        form, remedy = f"a dictionary with the keys {[*x]}", "flatten it, so that each of its values is one of the item"
    elif isinstance(x, (list, tuple)) and any(isinstance(e, collections.abc.Mapping) for e in x):
        form, remedy = f"a {type(x).__name__} of dictionaries", "flatten it, e.g. to an array for each of their keys"
    elif isinstance(x, list) and what == "it":
        form, remedy = "a list of different things", "return a tuple for several values"
    elif isinstance(x, (list, tuple)) and dtype is None:
        form, remedy = (
            f"a {type(x).__name__} whose entries differ in length",
            "give all entries one length, or give several values",
        )
    elif dtype is not None and (dtype.kind in "Mm" or hasattr(x, "isoformat")):
        form, remedy = f"a date or time ({type(x).__name__})", "convert it to a number or a string"
    elif dtype is not None and dtype.kind in "SU":
        form, remedy = f"several strings ({type(x).__name__} of dtype {dtype})", "join them, or give their numbers"
    else:
        form, remedy = f"{type(x).__name__} of dtype {dtype}", "convert it in __getitem__"
    key = what.removeprefix("key ")
    unchanged = f"metadata=[{key}]" if key != what else "metadata=[...], for items that are dictionaries,"
    return f"{what} must be an array, a number, a string or bytes, got {form}: {remedy}; {unchanged} gives it as it is"


def read(datasets, item, metadata=()):
    """What `leaves` returns of an item, which is (number of the data set, index in it). If reading it raises, the text
    of the exception and of its traceback in user code.
    """
    try:
        which, i = item
        return leaves(datasets[which][i], metadata)
    except Exception as e:
        frames = traceback.extract_tb(e.__traceback__)
        while frames and frames[0].filename == __file__:
            del frames[0]
        where = "".join(traceback.format_list(frames)).rstrip()
        return f"{type(e).__name__}: {e}" + (f"\nTraceback (most recent call last):\n{where}" if where else "")


def main(connection):
    """Reads the requested lists of items until the connection ends. It answers with (how, what was read of each item).

    Large arrays are sent in an unnamed file, whose descriptor follows the answer. The file vanishes however the
    processes end. (It is sent without multiprocessing's functions: from Python 3.14 on these wait for an
    acknowledgement, where the next request may come.)
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
            found = [a for row in rows if not isinstance(row, str) for a in row[1]]
            written = _written(rows) if sum(a.nbytes for a in found) >= SHARED else None
            if written is None:
                _send(connection, "rows", rows)
                continue
            file, described = written
            with file:
                if _send(connection, "file", described):
                    with socket.socket(fileno=os.dup(connection.fileno())) as sending:
                        socket.send_fds(sending, [b"f"], [file.fileno()])
    except (EOFError, BrokenPipeError, ConnectionError):  # the parent has ended, or closed the connection
        pass


def _send(connection, kind, rows):
    """Answers with rows, or with what is wrong with objects among them that can't be pickled. Returns whether it was
    the rows.
    """
    try:
        try:
            answer = reduction.ForkingPickler.dumps((kind, rows))
        except Exception:
            if "cloudpickle" not in sys.modules:
                raise
            answer = sys.modules["cloudpickle"].dumps((kind, rows))  # objects of the classes that came by value
    except Exception as e:
        connection.send(
            ("rows", [f"its metadata can't be sent by the process that read it: {type(e).__name__}: {e}"] * len(rows))
        )
        return False
    connection.send_bytes(answer)
    return True


def _memory_file():
    """A file without a name: in memory, or among temporary files where the operating system has none in memory (macOS)."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("jaxdali"), "wb")
    return tempfile.TemporaryFile()


def _written(rows):
    """A file with the arrays, and rows with (dtype, shape, place) for each. None if there is not enough memory."""
    described, place = [], 0
    try:
        file = _memory_file()
    except OSError:
        return None
    try:
        for row in rows:
            if isinstance(row, str):
                described.append(row)
                continue
            keys, arrays, objects = row
            places = []
            for a in arrays:
                place += file.write(b"\0" * (-place % ALIGNMENT))
                places.append((a.dtype, a.shape, place))
                place += file.write(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data)
            described.append((keys, places, objects))
        file.flush()
    except OSError:
        with contextlib.suppress(OSError):  # closing would write the rest
            file.close()
        return None
    return file, described


if __name__ == "jaxdali source worker":
    main(connection)  # noqa: F821  # pyright: ignore[reportUndefinedVariable]  the parent process provides it
