"""A few batches through every CUDA kernel, compared with the CPU's: short enough for compute-sanitizer; see run.sh.

    compute-sanitizer --tool memcheck python tests/gpu/sanitized.py [--cases 8] [--files 48] [--dry-run]

With XLA_PYTHON_CLIENT_ALLOCATOR=platform each buffer is an allocation of its own, so that accesses beyond one are seen.
"""

import itertools
import sys

import jax
import measuring
import numpy as np

sys.path.append(str(measuring.REPOSITORY / "tests"))

import jpeg_checks
import kernels
from jpeg_corpus import corpus


def main():
    args = measuring.arguments(__doc__, cases=8, files=48)
    device = measuring.device(args.dry_run)
    cpu = jax.devices("cpu")[0]
    for name, make in kernels.CASES.items():
        cases = list(make(np.random.default_rng(0)))
        chosen = cases[:: max(1, len(cases) // args.cases)]
        for case, options in zip(chosen, itertools.cycle(({}, {"dense": True}, {"broken": 2})), strict=False):
            kernels.assert_agree(
                case,
                kernels.run(case, measuring.kernel(name, args.dry_run), device=device, **options),
                kernels.run(case, device=cpu, **options),
            )
        print(f"{name}: {len(chosen)} batches", flush=True)
    decode = jpeg_checks.Kernels(measuring.kernel("decode", args.dry_run), device)
    files = corpus()
    files = files[:: max(1, len(files) // args.files)]
    print(f"decode: {jpeg_checks.check_corpus(decode, files)} files", flush=True)
    good, refused = jpeg_checks.check_damaged(decode, 2 * args.files)
    print(f"decode: {good} damaged files decoded, {refused} refused", flush=True)


if __name__ == "__main__":
    main()
