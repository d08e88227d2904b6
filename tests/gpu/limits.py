"""The limits of each CUDA kernel, as Nsight Compute sees the first launch of each; see run.sh.

    python tests/gpu/limits.py [KERNEL ...]        the names of rows.py; default: all

A column with 80 % or more says what a kernel is bound by. If none has, its warps wait for each other or for what they
have asked for. Then occupancy and the cycles between two instructions of a warp say how many warps hide how long a
wait.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
SECTIONS = ("SpeedOfLight", "Occupancy", "LaunchStats", "WarpStateStats")
COLUMNS = {  # in the table, and in the report
    "us": "Duration",
    "memory %": "DRAM Throughput",
    "L2 %": "L2 Cache Throughput",
    "L1 %": "L1/TEX Cache Throughput",
    "instructions %": "Compute (SM) Throughput",
    "occupancy %": "Achieved Occupancy",
    "cycles": "Warp Cycles Per Issued Instruction",
    "threads of 32": "Avg. Active Threads Per Warp",
    "registers": "Registers Per Thread",
}


def launches(report: str) -> list[dict[str, str]]:
    """The numbers of each launch in a report of ncu, by their names; "kernel": its name."""
    rows: list[dict[str, str]] = []
    for line in report.splitlines():
        if head := re.match(r"  void (.+)\(T1\) \(\d+, 1, 1\)x", line):
            rows.append({"kernel": re.sub(r"\b(jaxdali|jpeg)::", "", head[1]).removeprefix("Run<").removesuffix(">")})
        elif rows and (value := re.match(r"    (\S.*?)\s{2,}(?:\S+\s+)?([\d.,]+)\s*$", line)):
            rows[-1].setdefault(value[1], value[2].replace(",", ""))
    return rows


def profile(kernel: str) -> str:
    """The report of one process of rows.py."""
    with tempfile.NamedTemporaryFile("w") as shared:
        print(3e12, file=shared, flush=True)  # the bandwidth is not needed
        # fmt: off
        command = [
            "ncu", "--clock-control", "none", "--kernel-name-base", "demangled", "--kernel-id", "::regex:jaxdali:1",
            *(word for section in SECTIONS for word in ("--section", section)), sys.executable, str(HERE / "rows.py"), kernel, shared.name,
        ]
        # fmt: on
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def main():
    sys.path.append(str(HERE))
    import rows

    chosen = sys.argv[1:] or list(rows.KERNELS)
    print(f"| kernel | {' | '.join(COLUMNS)} |\n|---|{'--:|' * len(COLUMNS)}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        for kernel, report in zip(chosen, pool.map(profile, chosen), strict=True):
            rows_of_kernel = launches(report)
            for launch in rows_of_kernel:
                print(
                    f"| `{launch['kernel'][:120]}` | {' | '.join(launch.get(name, '') for name in COLUMNS.values())} |",
                    flush=True,
                )
            if not rows_of_kernel:
                print(
                    f"| {kernel}: no launches | {' | '.join(' ' * len(COLUMNS))} |\n\n```\n{report[-1500:]}\n```",
                    flush=True,
                )


if __name__ == "__main__":
    main()
