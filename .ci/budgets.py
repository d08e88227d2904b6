"""Compiles PTX for an H100 and checks the registers, spills and shared memory of each kernel. Prints them, and its
inner loops.

Usage: budgets.py FOLDER BUDGETS [KERNEL]

FOLDER has the PTX of the kernels (`ptx/` of a build of ffi/fuzz), and gets the code that ptxas makes of it. BUDGETS is
`.ci/budgets`.
KERNEL: only kernels whose name contains this. Needs ptxas on PATH; without nvdisasm loops are not printed.
"""

import concurrent.futures
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

REGISTERS, SHARED = 128, 43 * 1024  # of all kernels without a line in BUDGETS


class Kernel(NamedTuple):
    """The result of ptxas for a kernel."""

    module: str
    name: str
    registers: int
    spilled: int  # bytes, stores and loads
    shared: int
    loops: list[str]


def compile_and_disassemble(ptx: pathlib.Path) -> tuple[str, str]:
    """The messages of ptxas, and the code."""
    cubin = ptx.with_suffix(".cubin")
    run = subprocess.run(["ptxas", "-arch=sm_90", "-v", ptx, "-o", cubin], capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"ptxas {ptx}: {run.stderr}")
    if not shutil.which("nvdisasm"):
        return run.stderr, ""
    return run.stderr, subprocess.run(["nvdisasm", "-c", cubin], capture_output=True, text=True, check=True).stdout


def kernel_types(mangled: list[str]) -> list[str]:
    """K of "void jaxdali::Run<K>(K)"."""
    names = subprocess.run(
        ["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    types = []
    for name in names:
        twice = name.removeprefix("void jaxdali::Run<").removesuffix(")")  # "K>(K", or "K >(K"
        types.append(re.sub(r"jaxdali::|\(anonymous namespace\)::", "", twice[-((len(twice) - 2) // 2) :]))
    return types


def inner_loops(code: str) -> list[str]:
    """Instructions from the target of each jump back to the jump, without loops that contain others."""
    labels, jumps, local = {}, [], []
    address = -16
    for line in code.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = address + 16
        elif instruction := re.match(r"\s*/\*([0-9a-f]+)\*/\s+(.*);", line):
            address = int(instruction[1], 16)
            if jump := re.search(r"\bBRA.*`\((\.L_x_\d+)\)", instruction[2]):
                jumps.append((address, jump[1]))
            if re.search(r"\b(LDL|STL)\b", instruction[2]):
                local.append(address)
    # Each function ends with a jump to itself.
    loops = sorted({(labels[label], place) for place, label in jumps if label in labels and labels[label] < place})
    inner = [(a, b) for a, b in loops if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops)]
    texts = []
    for a, b in sorted(inner, key=lambda loop: loop[1] - loop[0]):
        spills = sum(a <= place <= b for place in local)
        texts.append(f"{(b - a) // 16 + 1}" + (f" ({spills} local)" if spills else ""))
    return texts


def kernels_of(module: str, log: str, code: str) -> list[Kernel]:
    """The kernels of a module, from what ptxas says and from its code."""
    entries = re.findall(
        r"Compiling entry function '(\S+)'.*?\n.*?\n\s*\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
        r".*?Used (\d+) registers(.*)",
        log,
    )
    sections = dict(re.findall(r"^\.text\.(\S+):\n(.*?)(?=^//-{10}|\Z)", code, re.MULTILINE | re.DOTALL))
    kernels = []
    for (mangled, stores, loads, registers, usage), name in zip(
        entries, kernel_types([e[0] for e in entries]), strict=True
    ):
        shared = re.search(r"(\d+) bytes smem", usage)
        loops = inner_loops(sections.get(mangled, ""))
        kernels.append(
            Kernel(module, name, int(registers), int(stores) + int(loads), int(shared[1]) if shared else 0, loops)
        )
    return kernels


def main(folder: str, budgets: str, only: str = "") -> int:
    """Prints all kernels. The exit status is 1 if one is beyond its budget."""
    lines = [
        line.rsplit(maxsplit=2)
        for line in pathlib.Path(budgets).read_text().splitlines()
        if line and not line.startswith("#")
    ]
    allowed = [(pattern, int(registers), int(spilled)) for pattern, registers, spilled in lines]
    # The largest first, so that all cores have work to the end.
    modules = sorted(
        (p for p in pathlib.Path(folder).glob("*.ptx") if p.stem != "faulty"), key=lambda p: -p.stat().st_size
    )
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        outputs = pool.map(compile_and_disassemble, modules)
        kernels = sorted(
            k for ptx, o in zip(modules, outputs, strict=True) for k in kernels_of(ptx.stem, *o) if only in k.name
        )
    if not kernels:
        raise SystemExit("there are no kernels")
    print("registers  spilled  shared  kernel: instructions of each inner loop")
    failures, needed = [], set()
    for k in kernels:
        pattern, registers, spilled = next(
            (line for line in allowed if fnmatch.fnmatchcase(k.name, line[0])), ("", REGISTERS, 0)
        )
        if k.registers > REGISTERS or k.spilled > 0:
            needed.add(pattern)
        print(f"{k.registers:9d}  {k.spilled:7d}  {k.shared:6d}  {k.module} {k.name}: {', '.join(k.loops)}")
        if k.registers > registers or k.spilled > spilled or k.shared > SHARED:
            took = f"{k.registers} registers, {k.spilled} bytes of spills, {k.shared} bytes of shared memory"
            failures.append(f"{k.name}: {took}; its budget is {registers}, {spilled}, {SHARED}")
    for pattern, *_ in allowed:
        if not only and pattern not in needed:
            print(f"no kernel needs the line {pattern} of {budgets}")
    print(*failures, sep="\n")
    spilling = sum(k.spilled > 0 for k in kernels)
    print(f"{len(kernels)} kernels, {spilling} with spills, {len(failures)} beyond their budget")
    return failures != []


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
