"""Storage: access to the bytes of files that are named by paths or by fsspec URLs.

A reader's argument ``storage=`` is a `Storage`, which holds the user's settings. The reader's list opens it as a
`Store`, which lists files, tells sizes, and reads whole files or ranges: local ones directly, others with retries, a
cache on disk, and read-ahead. Records consist of:

* whole files: `Files` in ``files.py``;
* ranges of a few files (containers): `Ranges` in ``ranges.py``; native threads read a local batch directly to its
  place;
* anything else: `Records.read` calls `Store.read`.

A list need only define `Records.ahead` to have its records fetched ahead. That is called with the records that come
next, and passes their ranges to `Files.ahead`, `Ranges.ahead` or `Store.ahead`. A range that was not announced is
fetched when it is read.
"""

from __future__ import annotations

import collections
import dataclasses
import errno
import functools
import glob
import os
import random
import stat
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Annotated, Any, NamedTuple

from .._core.declaration import Range, Whole, check_fields
from .._core.errors import LONGEST_QUOTE, cut
from .._core.redaction import HIDDEN, keep_secret, open_part, redacted, redacted_beside
from .._core.system import available_memory
from .disk_cache import DiskCache
from .http_client import GetClient
from .limits import UNCHECKED_BYTES, TooLargeError, beyond_limit, beyond_memory, too_large_error
from .patterns import expand
from .request_threads import RequestThreads
from .urls import Path, Paths, chaining_reason, is_url, origin, plain, unabridged

_AHEAD_BYTES = 512 << 20  # limit of the memory for batches to come
_RECORD_BYTES = 1 << 30  # the default of `Storage.max_record_bytes`, but for local files
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0  # seconds before a request is repeated: at first, and at most

# Errors that another attempt does not change. All other errors may be temporary, whatever class a filesystem raises.
_PERMANENT = (
    FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError, ImportError, TypeError, ValueError,
    TooLargeError,
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Storage:
    """The access of readers to files that are given as fsspec URLs (``s3://``, ``gs://``, ``hf://``, ``memory://``,
    ...). Not in DALI.

    As the order of records is known, the next ones are fetched while a batch is made, many at a time. Requests that
    fail for a temporary reason are repeated, after 0.1 s and then after increasing delays; `Pipeline.statistics` counts
    them.

    The library never shows the values of `options`, or passwords and signatures in a URL, in errors, `repr`, log lines
    or reports.

    Args:
      read_ahead: how many records are fetched ahead of the current batch (at least one batch, unless this is 0), and
        how many requests may run at the same time. 128 more than hide a latency of 50 ms at 1000 records per second.
        What is fetched ahead takes up to 512 MiB by the sizes of the records, or by their mean so far if these are not
        known. A body may turn out larger. Then requests fail when memory runs out.
      cache_dir: a local directory, in which fetched data are kept in a new folder ``jaxdali-cache``. Several processes
        may share it. Files are assumed not to change: if they do, empty the cache or use another one. A damaged entry
        is removed and fetched again. An entry belongs to a URL and to `options` without credentials: it is found with a
        new token, and not with another ``endpoint_url``. Where only credentials or variables of the environment choose
        the server, each server needs a directory of its own.
      cache_size: largest size of that folder in bytes; the least recently used entries are removed.
      retries: how often a request is repeated before the sample fails.
      timeout: how many seconds one request may take.
      options: keyword arguments of the fsspec filesystem: credentials, ``endpoint_url``, ``anon``, ... Where an HTTP
        server redirects to another origin (protocol, host or port, so also from ``http`` to ``https``), that origin gets
        none of their headers, cookies and credentials, but only Accept, User-Agent and Range. No later redirect gets
        them either, nor are cookies sent there that a server set meanwhile.
      allow_outside: whether names in data (cells of tables, lists of files, annotations, manifests) may be URLs, or
        lead outside the directory of the data. Use it only for data that you trust. Symbolic links below the directory
        are followed in any case, wherever they lead: they belong to whoever made the directory. `options` are never
        sent to hosts that only data name, but only to those of URLs in arguments, such as ``file_root="s3://bucket"``.
      allow_chained: whether URLs may chain file systems (``simplecache::s3://...``), or name one that opens other URLs
        (``reference://``, ``zip://``, ``filecache://``, ...). Use it only for URLs that you trust, as some of these
        execute what they find, and they follow redirects and read bodies by rules of their own.
      max_record_bytes: the largest size of a record in a container, and of what is decompressed to read it: a chunk of
        an ArrayRecord file, a row group or record batch of a table, a member of an archive, a value of a database. Also
        of what is decoded from a record: the output of `decoders.inflate`, a signal of sound, also resampled, a clip of
        video, an image sequence; and of a whole file that is a sample, or has samples, whatever an HTTP server announces. A
        larger one is an error of its record. None: 1 GiB, and for local files what fits into memory. Lists, annotations
        and indices may have 1 GiB by URL, and what fits into memory if they are local.

    Example:
      >>> storage = jaxdali.Storage(cache_dir="/tmp/cache", cache_size=50 << 30, options={"anon": True})
      >>> jpegs, labels = fn.readers.file(file_root="s3://bucket/train", storage=storage)
    """

    read_ahead: Annotated[Whole, Range(0)] = 128
    cache_dir: Path | None = None
    cache_size: Annotated[Whole, Range(1)] = 10 << 30
    retries: Annotated[Whole, Range(0)] = 5
    timeout: Annotated[float, Range(0, above=True)] = 30.0
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    allow_outside: bool = False
    allow_chained: bool = False
    max_record_bytes: Annotated[Whole, Range(1)] | None = None

    def __post_init__(self):
        """Checks the settings, and hides the secrets in `options` from all texts."""
        check_fields("Storage", self, {f.name for f in dataclasses.fields(self)} - {"cache_dir", "options"})
        keep_secret(self.options)

    def __repr__(self) -> str:
        shown = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        shown["options"] = dict.fromkeys(self.options, HIDDEN)
        return redacted(f"Storage({', '.join(f'{name}={value!r}' for name, value in shown.items())})")

    @property
    def record_bytes(self) -> int:
        """`max_record_bytes`, or its default for everything but local files."""
        return _RECORD_BYTES if self.max_record_bytes is None else self.max_record_bytes

    def too_large(self, size: int) -> str:
        """The reason why a record of `size` bytes is not read; "" if it is read."""
        return beyond_limit(size, self.record_bytes) if size > self.record_bytes else ""

    def open(self) -> Store:
        """A `Store` that reads from the storage."""
        return Store(self)


class ByteRange(NamedTuple):
    """Bytes of a file: `size` bytes from `start` on. None: up to its end."""

    path: str
    start: int = 0
    size: int | None = None


class WholeFile(ByteRange):
    """A whole file that is a sample or has samples. If its size is known, it must have no more bytes."""

    __slots__ = ()


class DirectoryEntry(NamedTuple):
    """An entry of a directory. Its size is in bytes, -1 if it is unknown."""

    name: str
    is_dir: bool
    size: int


class Store:
    """An open `Storage`: see the module's docstring. The first URL starts its threads, and `close` ends them. It may be
    used again afterwards. The threads of a store that is dropped end, too.

    Attributes:
      settings: the user's settings.
      counts: counts for URLs so far: "requests", "bytes", "retries", "cached" (reads served from the cache on disk),
        "damaged" (damaged entries of the cache, which were fetched again).
      most_room: the largest number of bytes that memory had room for when it was looked up.
    """

    _threads: RequestThreads | None = None

    def __init__(self, settings: Storage | None = None):
        self.settings = settings or Storage()
        self.counts: collections.Counter[str] = collections.Counter()
        self.most_room = 0.0
        self._lock = threading.Lock()  # guards `counts` and `_threads`
        self._futures: dict[ByteRange, Future[bytes]] = {}  # the ranges that were announced by `ahead`
        # By URL: its filesystem, and the file's name in it.
        self._filesystem = functools.lru_cache(maxsize=1024)(self._new_filesystem)
        self._cache = None
        if self.settings.cache_dir is not None:
            self._cache = DiskCache(
                plain(self.settings.cache_dir), self.settings.cache_size, lambda: self._count(damaged=1)
            )
        # Origins of URLs that the user named, and of those that only data name.
        self._user_origins, self._data_origins = set[tuple[str, str]](), set[tuple[str, str]]()

    # --- origins of names ---------------------------------------------------------------------------------------

    def named(self, path: Path) -> str:
        """A path or URL from the user, in the form of `plain`. `Storage.options` may be sent to its host."""
        path = plain(path)
        if is_url(path):
            self._user_origins.add(origin(path))
        return path

    def named_by_data(self, names: Iterable[str]) -> None:
        """Records the origins of URLs that data name. `Storage.options` are not sent to them, unless the user named a
        URL of the same origin.
        """
        self._data_origins.update(origin(plain(name)) for name in names if is_url(name))

    # --- sizes and directories ----------------------------------------------------------------------------------

    def size(self, path: str) -> int:
        """Size of a file in bytes. Raises OSError if it is unknown, or the path is not a file."""
        return self.sizes([path])[0] if is_url(path) else _size_of(os.stat(path), path)

    def is_file(self, path: str) -> bool:
        """Whether a path is a file whose size is known."""
        try:
            self.size(path)
        except OSError:
            return False
        return True

    def sizes(self, paths: Sequence[str]) -> list[int]:
        """The sizes of many files, which are requested at the same time."""
        if not any(map(is_url, paths)):
            return list(map(self.size, paths))
        infos = self._request_all(paths, lambda fs, name, **kw: fs.info(name, **kw))
        for path, info in zip(paths, infos):
            if info["size"] is None:
                raise OSError(errno.EINVAL, "its size is unknown", redacted(path))
        return [int(info["size"]) for info in infos]

    def entries(self, directories: Sequence[str]) -> list[list[DirectoryEntry]]:
        """The entries of directories that are given by URLs, sorted by name."""

        def ls(fs: Any, name: str, **kw: Any) -> list[DirectoryEntry]:
            """The entries of directory `name` of a filesystem. `kw` may have its timeout."""
            fs.invalidate_cache(name)  # otherwise fsspec may return an earlier listing
            listing = [
                (i["name"].rstrip("/"), i["type"] == "directory", i["size"]) for i in fs.ls(name, detail=True, **kw)
            ]
            entries = [
                DirectoryEntry(path.rpartition("/")[2], is_dir, -1 if size is None else size)
                for path, is_dir, size in listing
                if path != name.rstrip("/")  # some stores list the directory itself
            ]
            return sorted(entries, key=lambda e: os.fsencode(e.name))

        return self._request_all(directories, ls)

    def expand(self, paths: Paths) -> list[str]:
        """Expands one path or several: ``*``, ``?`` and ``[`` match files, in byte order, and ``{a,b}`` and
        ``{000..127}`` stand for names. A path that exists is literal.

        Raises:
          RuntimeError: no file matches.
          OSError: a request to a server fails.
        """
        all_paths = list(map(self.named, (paths,) if isinstance(paths, (str, os.PathLike)) else paths))
        # Requests for all of them run at once: there may be many, as signed URLs have a "?". Names with "*" only are
        # not requested, because files seldom have them.
        urls = [
            path
            for path in dict.fromkeys(all_paths)
            if is_url(path) and not set("?[{").isdisjoint(path.split("/", 3)[-1])  # what follows protocol and host
        ]
        existing = dict(zip(urls, self._exist(urls)))

        def exists(path: str) -> bool:
            if not is_url(path):
                return os.path.lexists(path)
            return not set("?[{").isdisjoint(path) and (existing[path] if path in existing else self._exist([path])[0])

        def matches(path: str) -> Sequence[str]:
            """The files that match wildcards: paths, or the full URLs that a server lists."""
            if not is_url(path):
                return [m for m in glob.glob(path, recursive=True) if not os.path.isdir(m)]
            (files,) = self._request_all(
                [path], lambda fs, name, **kw: [fs.unstrip_protocol(m) for m in fs.glob(name, **kw)]
            )
            return files

        return [
            name for path in all_paths for name in ([path] if existing.get(path) else expand(path, exists, matches))
        ]

    def _exist(self, paths: Sequence[str]) -> list[bool]:
        """Whether each URL is a file or folder. The requests run at the same time."""

        def request(fs: Any, name: str, **kw: Any) -> bool:
            """Requests whether `name` exists in a filesystem."""
            try:
                return fs.exists(name, **kw)
            # S3 answers so about an object that does not exist, if the user may not list the bucket.
            except PermissionError:
                return False

        return self._request_all(paths, request)

    # --- contents -----------------------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """Bytes of a file: `size` from `start` on. None: up to its end.

        Raises:
          OSError: `filename` is the path or URL, `strerror` the reason, for example that the file ends before the range
            does.
        """
        if is_url(path):
            return self._fetched(ByteRange(path, start, size))
        if size is None and not start:
            return _read_local(path, _check_memory)
        with open(path, "rb") as f:
            f.seek(start)
            if size is not None:
                _check_memory(size, path)
            data = f.read() if size is None else f.read(size)
        if size is not None and len(data) < size:
            raise OSError(errno.EIO, _length_message(len(data), size, start), path)
        return data

    def read_file(self, file: WholeFile) -> bytes:
        """A whole file that is a sample or has samples. Raises OSError like `read`, also if the file is too large."""
        return self._fetched(file) if is_url(file.path) else _read_local(file.path, self.check_file)

    def check_file(self, size: int, path: str) -> None:
        """Raises OSError if a local file that is a sample is larger than the storage allows, or if that has no limit,
        than fits into memory. That is looked up for large ones only.
        """
        limit = self.settings.max_record_bytes
        if limit is not None and size > limit:
            raise _error_with_path(too_large_error(size, limit), path)
        if limit is None:
            _check_memory(size, path)

    def _fetched(self, byte_range: ByteRange) -> bytes:
        """Bytes of a URL. A range that was announced is already being fetched."""
        return self._wait(byte_range.path, self._futures.get(byte_range) or self._submit(byte_range))

    def kept(self, path: str, name: tuple[Any, ...], make: Callable[[], bytes]) -> bytes:
        """The result of ``make()``, which takes long to compute from a file. The cache on disk, if there is one, keeps
        it under the file's path and a name.
        """
        if self._cache is None:
            return make()
        key = self._cache_key(path, *name)
        data = self._cache.get(key)
        if data is None:
            data = make()
            self._cache.put(key, data)
        return data

    def ahead(self, ranges: Iterable[ByteRange], now: int = 0) -> None:
        """Starts fetching ranges, in this order, and drops all others that were fetched.

        Args:
          now: the number of ranges at the beginning that are needed immediately. Of the others, only as many are
            fetched as the memory limit allows.
        """
        futures: dict[ByteRange, Future[bytes]] = {}
        # The size of a whole file is not known before it is fetched.
        average_size = self.counts["bytes"] // max(self.counts["requests"], 1)
        num_bytes = 0
        for k, byte_range in enumerate(ranges):
            if byte_range in futures or not is_url(byte_range.path):
                continue
            num_bytes += average_size if byte_range.size is None else byte_range.size
            if k >= now and num_bytes > _AHEAD_BYTES:
                break
            futures[byte_range] = self._futures.pop(byte_range, None) or self._submit(byte_range)
        for future in self._futures.values():
            future.cancel()
        self._futures = futures

    def close(self) -> None:
        """Drops fetched data, and ends the threads."""
        self._futures = {}
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()

    def __del__(self):
        if self._threads is not None:  # a list of records was dropped before it was whole, as it has failed
            self._threads.end()

    # --- requests -----------------------------------------------------------------------------------------------

    def _submit(self, byte_range: ByteRange) -> Future[bytes]:
        """Requests a range in one of the store's threads, which the first request makes."""
        with self._lock:
            # At least 8, because `read_ahead` may be 0.
            threads = self._threads = self._threads or RequestThreads(max(self.settings.read_ahead, 8))
        return threads.submit(self._fetch, byte_range)

    def _request_all(self, paths: Sequence[str], f: Callable[..., Any]) -> list[Any]:
        """Calls ``f(filesystem, name, **timeout)`` for all paths at the same time, with retries, in up to 32 threads.
        These end with the call.
        """
        if not paths:
            return []
        with RequestThreads(min(32, len(paths))) as threads:
            futures = [(path, threads.submit(lambda path, ended: self._retry(path, f, ended), path)) for path in paths]
            return [self._wait(path, future) for path, future in futures]

    def _wait(self, path: str, future: Future[Any]) -> Any:
        """The result of a request. Raises TimeoutError if it does not end, OSError if another thread closes the store."""
        settings = self.settings
        try:
            # Requests have their own timeout if the filesystem supports one. This is the limit for the others.
            return future.result((settings.timeout + _LONGEST_WAIT) * (settings.retries + 1))
        except FutureTimeoutError:
            text = f"no answer within {settings.timeout:g} s, also after {settings.retries} more requests"
            raise TimeoutError(errno.ETIMEDOUT, text, redacted(path)) from None
        except CancelledError:
            raise _closed_error(path) from None

    def _fetch(self, byte_range: ByteRange, ended: threading.Event) -> bytes:
        """The bytes of a range, from the cache on disk or by a request. `ended` is set when the result is no longer
        needed.
        """
        path, start, size = byte_range
        is_file, limit = isinstance(byte_range, WholeFile), self.settings.record_bytes
        if not is_file:  # lists and indices may be larger than samples
            limit = max(limit, _RECORD_BYTES)
        if size is not None and size > limit:
            raise _error_with_path(too_large_error(size, limit), path)
        key = self._cache_key(*byte_range)
        if self._cache is not None and (data := self._cache.get(key, size)) is not None:
            if len(data) > limit:
                raise _error_with_path(too_large_error(len(data), limit), path)
            self._count(cached=1)
            return data

        def request(fs: Any, name: str, **kw: Any) -> bytes:
            """Requests the range of file `name` of a filesystem."""
            if size == 0:
                return b""
            if isinstance(getattr(fs, "get_client", None), GetClient):
                kw["limit"] = limit
            # One byte more than a whole file has shows whether it is longer now.
            end = None if size is None else start + size + is_file
            data = fs.cat_file(name, start=start or None, end=end, **kw)
            self._count(bytes=len(data))
            if size is not None and len(data) != size:
                raise OSError(errno.EIO, _length_message(len(data), size, start), path)
            if len(data) > limit:
                raise too_large_error(len(data), limit)
            return data

        data = self._retry(path, request, ended)
        if self._cache is not None:
            self._cache.put(key, data)
        return data

    def _retry(self, path: str, f: Callable[..., Any], ended: threading.Event) -> Any:
        """Calls ``f(filesystem, name, **timeout)``, again after an error that may be temporary, until `ended` is
        set.
        """
        settings = self.settings
        if not settings.allow_chained and (reason := chaining_reason(path, settings.options)):
            raise OSError(
                errno.EINVAL, f"{reason}; Storage(allow_chained=True) permits it if the URL is trusted", redacted(path)
            )
        wait = _FIRST_WAIT
        for attempt in range(settings.retries + 1):
            try:
                self._count(requests=1)
                fs, name = self._filesystem(path)
                return f(fs, name, **({"timeout": settings.timeout} if fs.async_impl else {}))
            except _PERMANENT as e:
                raise _error_with_path(e, path) from None  # the original traceback would show the URL in the text
            except Exception as e:
                if attempt == settings.retries:
                    raise _error_with_path(e, path, f" (after {attempt + 1} attempts)") from None
            self._count(retries=1)
            # Random, so that requests that failed together are not repeated together.
            if ended.wait(wait * random.uniform(0.5, 1)):
                break
            wait = min(2 * wait, _LONGEST_WAIT)
        raise _closed_error(path)

    def _cache_key(self, path: str, *name: Any) -> tuple[Any, ...]:
        """The key of a file's data in the cache on disk. On another server, the same URL is another file."""
        return (path, *name, open_part(self._options_for(path) if is_url(path) else {}))

    def _options_for(self, url: str) -> dict[str, Any]:
        """The user's options of the filesystem. They may have credentials, so an origin that only data name gets none."""
        is_data_only = origin(url) in self._data_origins and origin(url) not in self._user_origins
        return {} if is_data_only else dict(self.settings.options)

    def _count(self, **counts: int):
        with self._lock:
            self.counts.update(counts)

    def _new_filesystem(self, url: str) -> tuple[Any, str]:
        """The filesystem of a URL, and the file's name in it."""
        try:
            import fsspec.core
        except ImportError as e:
            raise ImportError('URLs need fsspec: pip install "jaxdali[remote]"') from e
        options = self._options_for(url)
        if url.startswith(("s3://", "s3a://")):  # botocore's default is 10 connections
            options["config_kwargs"] = {
                "max_pool_connections": max(self.settings.read_ahead, 10),
                **options.get("config_kwargs", {}),
            }
        if url.startswith(("http://", "https://")):
            limit = max(self.settings.record_bytes, _RECORD_BYTES)
            options["get_client"] = GetClient(limit, options.get("get_client"))
        return fsspec.core.url_to_fs(unabridged(url), **options)


def _length_message(length: int, size: int, start: int) -> str:
    """The message about a range that has another length than was expected."""
    shown = f"more than {size} bytes" if length > size else f"{length} bytes"
    return f"{shown} from {start} on where {size} were expected"


def _size_of(status: os.stat_result, path: str) -> int:
    """The size of a local file. Raises OSError if it is no regular one."""
    if not stat.S_ISREG(status.st_mode):
        # A pipe, for example, has no size, and reading it may never end.
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return status.st_size


def _check_memory(size: int, path: str) -> None:
    """Raises OSError if `size` bytes of a local file do not fit into memory. That is looked up for large ones only."""
    if size > UNCHECKED_BYTES and size > (room := available_memory()):
        raise OSError(errno.EFBIG, beyond_memory(size, room), path)


def _read_local(path: str, check: Callable[[int, str], None]) -> bytes:
    """A whole local file, unless ``check(its size, path)`` raises OSError."""
    # O_NONBLOCK: a pipe is not waited for, but refused.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as f:
        check(_size_of(os.fstat(f.fileno()), path), path)
        return f.read()


def _closed_error(path: str) -> OSError:
    """The error of a request that `Store.close` has ended."""
    return OSError(errno.ECANCELED, "the reader was closed", redacted(path))


def _error_with_path(e: Exception, path: str, suffix: str = "") -> Exception:
    """An error of a request as an OSError with the path; an ImportError is returned unchanged.

    It has the text of the exception and not its `repr`, which may show the request with all headers.
    """
    if isinstance(e, ImportError):
        return e
    errno_of_class = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES}
    error_class, number = next(((k, n) for k, n in errno_of_class.items() if isinstance(e, k)), (OSError, errno.EIO))
    text = os.strerror(number)
    # Any other exception: its own text.
    if error_class is OSError:
        text = e.strerror if isinstance(e, OSError) and e.strerror else f"{type(e).__name__}: {e}".removesuffix(": ")
    # A server may answer with a long text. It often has the URL.
    shown = cut(redacted_beside(text, path), LONGEST_QUOTE + len(path))
    return error_class(number, f"{shown}{suffix}", redacted(path))
