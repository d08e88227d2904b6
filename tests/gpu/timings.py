"""How long each CUDA kernel takes for a batch, beside the least memory traffic it can have; see run.sh.

    python tests/gpu/timings.py [KERNEL ...] [--images 256] [--dry-run]

The images have about 500x375 pixels, 3 channels of bytes. The traffic is what must be moved: the input pixels that the
output depends on (of `decode`: the bytes of the files), read once, and the output, written once, at the bandwidth at
which this card copies 1 GB in the same run. Each program makes eight calls on the same images.

Each kernel is measured by a process of its own (rows.py), so that one that fails spoils no other. A few of them start
at once, because imports take seconds, but one at a time uses the GPU. A row is printed, and written to $OUT/timings.md,
as soon as it is measured.
"""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import gpu_photos

# What matters most comes first.
KERNELS = (
    *("chain", "decode", "resize", "warp", "window", "color", "filter", "remap", "stencil", "equalize"),
    *("jpeg_distortion", "paste", "table", "reduce", "expand", "merge", "patchify"),
)
AT_ONCE = 4
HEAD = ["| kernel | ms | traffic MB | ms for the traffic | times that (target 1.5) |", "|---|--:|--:|--:|--:|"]


class Report:
    """Prints lines, and writes them to a file if $OUT names a folder. Threads may share it."""

    def __init__(self):
        out, self.lock = os.environ.get("OUT"), threading.Lock()
        if out:
            pathlib.Path(out).mkdir(parents=True, exist_ok=True)
        self.file = pathlib.Path(out, "timings.md").open("w") if out else None

    def say(self, line: str):
        with self.lock:
            print(line, flush=True)
            if self.file is not None:
                print(line, file=self.file, flush=True)


def measure(kernel: str, options: list[str], report: Report) -> bool:
    """Whether the kernel was measured. If not, a row has the end of what its process said, and stderr more of it."""
    command = [sys.executable, "-X", "faulthandler", str(pathlib.Path(__file__).with_name("rows.py")), kernel, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert process.stdout is not None
    messages = []
    for line in process.stdout:
        if line.startswith("| "):
            report.say(line.rstrip("\n"))
        elif line.strip() and not line.startswith("Extension modules"):
            messages.append(line.strip())
    if status := process.wait():
        print(*messages[-60:], sep="\n", file=sys.stderr, flush=True)
        # What a crash or a hang leaves begins with where it was.
        begin = next((i for i, line in enumerate(messages) if line.startswith(("Fatal Python error", "Timeout"))), -4)
        said = " / ".join(messages[begin:][:4]).replace("|", "\\|")
        report.say(f"| {kernel}: failed (status {status}): {said[:400]} | | | | |")
    return status == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=", ".join(KERNELS))
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, small")
    args = parser.parse_args()
    if unknown := set(args.kernels) - set(KERNELS):
        parser.error(f"unknown: {', '.join(unknown)}")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share the card
    kernels = args.kernels or KERNELS
    if "decode" in kernels:
        gpu_photos.make(4 if args.dry_run else args.images)
    report = Report()
    print()
    for line in HEAD:
        report.say(line)
    with tempfile.NamedTemporaryFile() as shared, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
        options = [shared.name, f"--images={args.images}", *["--dry-run"] * args.dry_run]
        measured = list(threads.map(lambda kernel: measure(kernel, options, report), kernels))
    print()
    failed = [kernel for kernel, good in zip(kernels, measured, strict=True) if not good]
    if args.dry_run:
        import measuring

        failed += [f"{kernel} (no row)" for kernel in sorted(measuring.kernels(dry_run=True) - set(KERNELS))]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
