"""Checks the module in a wheel for macOS, on any system: python ffi/wheels/check_macos.py WHEEL SYMBOLS

    SYMBOLS  nanobind's list of the symbols that Python has for all extension modules (darwin-ld-cpython.sym)

The module may load no library but the system's, and all other symbols that it lacks must be Python's. Needs macholib.
"""

import pathlib
import re
import sys
import tempfile
import zipfile

from macholib.MachO import MachO
from macholib.SymbolTable import SymbolTable

SYSTEM = "/usr/lib/libSystem.B.dylib"


def main(wheel: str, symbols: str):
    """Checks the wheel, and exits with a message if something is wrong."""
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        (name,) = (name for name in archive.namelist() if name.endswith(".so"))
        module = MachO(archive.extract(name, folder))
        table = SymbolTable(module)
    (header,) = module.headers
    libraries = {
        data.rstrip(b"\0").decode() for command, _, data in header.commands if command.get_cmd_name() == "LC_LOAD_DYLIB"
    }
    if libraries != {SYSTEM}:
        raise SystemExit(f"{name} needs the libraries {sorted(libraries)}")
    # The upper byte of n_desc is the number of the library that has the symbol; 1 is the first one, the system's.
    looked_up = {name.decode() for symbol, name in table.undefsyms if symbol.n_desc >> 8 & 255 != 1}
    unknown = looked_up - set(re.findall(r"^-U (\w+)$", pathlib.Path(symbols).read_text(), re.MULTILINE))
    if unknown:
        raise SystemExit(f"neither Python nor {SYSTEM} has the symbols {sorted(unknown)}, which {name} needs")
    exported = {name.decode() for _, name in table.extdefsyms}
    if "_PyInit__cpu" not in exported:
        raise SystemExit(f"{name} does not export _PyInit__cpu")
    print(f"{name}: {len(looked_up)} symbols of Python, {len(table.undefsyms) - len(looked_up)} of {SYSTEM}")


if __name__ == "__main__":
    main(*sys.argv[1:])
