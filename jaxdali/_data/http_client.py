"""The client for http(s) URLs: bodies have a limit, and redirects to another origin do not get what the user gave.

fsspec's filesystem gets it as its `get_client`, so all requests of the filesystem pass through it: contents, sizes and
listings.
"""

from __future__ import annotations

import dataclasses
import errno
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any

from .._core.system import available_memory
from .limits import too_large_error

_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REQUESTS = 10  # for one answer, as in aiohttp
_BUFFER = 1 << 20  # bytes of a body that may wait to be read; the default stops and resumes most bodies
_ERROR_BYTES = 1 << 16  # that are read of the text of an error, so that the connection can be used again
_UNWATCHED_BODY = 8 << 20  # bytes of a body up to which memory is not watched: many may be fetched at a time
_MEMORY_STEP = 32 << 20  # bytes of such bodies after which the memory is looked up again
_RESERVE = 256 << 20  # bytes of memory that are left when they fail
# Headers that another origin may see. All others may be credentials, whatever their names.
_PLAIN = frozenset({"accept", "accept-encoding", "accept-language", "if-range", "range", "user-agent"})
# Arguments of a request that only its origin gets.
_OF_ORIGIN = ("auth", "cookies", "data", "json", "middlewares", "params")


@dataclasses.dataclass(frozen=True)
class GetClient:
    """The `get_client` of fsspec's filesystem: makes a `Client`.

    Attributes:
      limit: the largest size of a body in bytes, for requests that have none of their own.
      make: makes the user's client from keyword arguments; None: an `aiohttp.ClientSession` is made.
    """

    limit: int
    make: Callable[..., Awaitable[Any]] | None = None

    async def __call__(self, **arguments: Any) -> Client:
        """A client of an `aiohttp.ClientSession` with these arguments."""
        import aiohttp

        return Client(await self.make(**arguments) if self.make else aiohttp.ClientSession(**arguments), self.limit)


class Client:
    """Makes requests by an `aiohttp.ClientSession`, like which it is used.

    Args:
      session: has the user's headers, cookies and credentials.
      limit: see `GetClient`.
    """

    def __init__(self, session: Any, limit: int):
        self._session, self._limit = session, limit
        self.unwatched = 0  # bytes of large bodies since the memory was looked up
        self._other: Any = None  # the session for other origins, which has only the connections of the first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get(self, url: Any, *, allow_redirects: bool = True, limit: int | None = None, **arguments: Any) -> _Answer:
        """The answer to GET, see `aiohttp.ClientSession.get`. Its body may have `limit` bytes, or those of the range
        that is requested.
        """
        return _Answer(self._request("GET", url, allow_redirects, self._limit if limit is None else limit, **arguments))

    def head(self, url: Any, *, allow_redirects: bool = False, **arguments: Any) -> _Answer:
        """The answer to HEAD, see `aiohttp.ClientSession.head`."""
        return _Answer(self._request("HEAD", url, allow_redirects, self._limit, **arguments))

    async def _request(
        self,
        method: str,
        url: Any,
        allow_redirects: bool,
        limit: int,
        *,
        headers: Mapping[str, str] | None = None,
        max_redirects: int = _MAX_REQUESTS,
        **arguments: Any,
    ) -> Any:
        """The last answer of a chain of redirects."""
        import aiohttp
        import yarl

        session, url, answer = self._session, yarl.URL(url), None
        arguments.setdefault("read_bufsize", _BUFFER)
        for _ in range(max_redirects):
            answer = await session.request(method, url, headers=headers, allow_redirects=False, **arguments)
            location = answer.headers.get("Location")
            if not allow_redirects or answer.status not in _REDIRECTS or not location:
                answer.content = _Body(self, answer, limit)
                return answer
            answer.release()
            target = url.join(yarl.URL(location))
            if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
                # From now on: a redirect back may be made by the other origin.
                session, headers = self._session_for_others(), self._plain(headers)
                arguments = {name: value for name, value in arguments.items() if name not in _OF_ORIGIN}
            elif target.user is None and url.user is not None:
                target = target.with_user(url.user).with_password(url.password)
            arguments.pop("params", None)  # the location has its own
            url = target
        assert answer is not None
        raise aiohttp.TooManyRedirects(answer.request_info, ())

    def _plain(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        """The headers that another origin may see, of those of the session and of a request."""
        every = {**getattr(self._session, "headers", {}), **(headers or {})}
        return {name: value for name, value in every.items() if name.lower() in _PLAIN}

    def _session_for_others(self) -> Any:
        """A session with the same connections, and with none of the user's headers, cookies and credentials."""
        import aiohttp

        if self._other is None:
            first = self._session
            self._other = aiohttp.ClientSession(
                connector=first.connector, connector_owner=False, timeout=first.timeout, trust_env=first.trust_env
            )
        return self._other


class _Answer:
    """An answer that is awaited, or used as a context, as those of aiohttp."""

    def __init__(self, answer: Awaitable[Any]):
        self._answer = answer

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._answer.__await__()

    async def __aenter__(self) -> Any:
        self._entered = await self._answer
        return await self._entered.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await self._entered.__aexit__(*error)


class _Body:
    """The content of an answer, which ends at a limit. It does not refer to the answer, which would otherwise be freed
    late, with all that was read.

    Args:
      client: which made the request.
      answer: whose content it is.
      limit: its largest size in bytes, unless a range was requested.
    """

    def __init__(self, client: Client, answer: Any, limit: int):
        self._client, self._content, self._limit = client, answer.content, limit
        self._announced: int | None = answer.content_length
        self._status = f"{answer.status} {answer.reason}"
        self._is_error = answer.status >= 400
        # The user may ask for other forms of ranges, which have the plain limit.
        ranges = answer.request_info.headers.get("Range", "")
        byte_range = re.fullmatch(r"bytes=(\d+)-(\d+)", ranges)
        self._is_range = byte_range is not None
        # A cache may send a part of a file unasked, or nothing (304), and a firewall its own page (202).
        self._is_requested = answer.status in ((200, 203, 206) if ranges else (200, 203)) and (
            answer.content_type != "multipart/byteranges" or "," in ranges
        )
        if byte_range:
            self._limit = int(byte_range[2]) + 1 - int(byte_range[1])
            content_range = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
            self._is_requested &= content_range is None or int(content_range[1]) == int(byte_range[1])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def read(self) -> bytes:
        """All of it; of a range that is longer than was requested, and of a long text of an error, only the beginning.

        Raises:
          TooLargeError: it is larger than the limit.
          OSError: it is not what was requested, or does not fit into memory.
        """
        if not self._is_requested and not self._is_error:
            raise OSError(errno.EIO, f"the answer is not the content that was requested: {self._status}")
        client, limit = self._client, _ERROR_BYTES if self._is_error else self._limit
        may_be_cut = self._is_error or self._is_range  # whoever asked for a range sees that it has another length
        if not may_be_cut and (self._announced or 0) > limit:
            raise too_large_error(self._announced, limit)
        pieces, size = [], 0
        while piece := await self._content.readany():
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                if may_be_cut:
                    break
                raise too_large_error(None, limit)
            if size > _UNWATCHED_BODY:
                client.unwatched += len(piece)
                if client.unwatched > _MEMORY_STEP:
                    # The pieces will be copied into one.
                    if size + _RESERVE > available_memory():
                        raise OSError(errno.ENOMEM, f"memory does not suffice: {size} bytes were read")
                    client.unwatched = 0
        return b"".join(pieces)
