"""A filesystem for fsspec, ``faulty://``, that is slow, fails and gives less than it was asked for, as it is told."""

import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import fsspec


class Faulty(fsspec.AbstractFileSystem):
    """Files in memory.

    Attributes:
      files: contents by name.
      latency: seconds that each request takes.
      fault: gets a request's file and its number among those for this file; what it returns is raised, or (an integer)
        is how many bytes are given.
      requests: those for contents, in their order: (file, start, end).
      most: how many were under way at the same time.
    """

    protocol = "faulty"
    cachable = False
    files: ClassVar[dict[str, bytes]] = {}
    latency: ClassVar[float] = 0.0
    fault: ClassVar[Callable[[str, int], Any]] = staticmethod(lambda name, number: None)
    requests: ClassVar[list[tuple[str, int | None, int | None]]] = []
    most: ClassVar[int] = 0
    _under_way: ClassVar[int] = 0
    _lock: ClassVar[Any] = threading.Lock()

    @classmethod
    def start(
        cls, files: dict[str, bytes], latency: float = 0.0, fault: Callable[[str, int], Any] = lambda name, number: None
    ):
        cls.files, cls.latency, cls.fault, cls.requests, cls.most = files, latency, staticmethod(fault), [], 0

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        cls, name = type(self), self._strip_protocol(path)
        with cls._lock:
            number = sum(r[0] == name for r in cls.requests)
            cls.requests.append((name, start, end))
            cls._under_way += 1
            cls.most = max(cls.most, cls._under_way)
        try:
            time.sleep(cls.latency)
            if isinstance(fault := cls.fault(name, number), BaseException):
                raise fault
            return self._content(name)[start:end][:fault]
        finally:
            with cls._lock:
                cls._under_way -= 1

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        if name not in self.files and any(n.startswith(f"{name}/") for n in self.files):
            return {"name": name, "type": "directory", "size": 0}
        return {"name": name, "type": "file", "size": len(self._content(name))}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        name = self._strip_protocol(path).rstrip("/")
        names = {n[len(name) + 1 :].split("/")[0] for n in self.files if n.startswith(f"{name}/")}
        if not names:
            raise FileNotFoundError(path)
        infos = [self.info(f"{name}/{n}") for n in sorted(names)]
        return infos if detail else [i["name"] for i in infos]

    def _content(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]


fsspec.register_implementation("faulty", Faulty)
