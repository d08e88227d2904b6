# The compiled module; its functions are defined and described in ffi/module.cc.
from typing import Any

def __getattr__(name: str) -> Any: ...
