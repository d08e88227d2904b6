"""Decoding of a batch of JPEGs by nvJPEG through torchvision, for bench_decode.py, which starts this.

    python tests/gpu/bench_nvjpeg.py IMAGES ROUNDS [--dry-run]

The last line is the median of the seconds of a batch. torchvision may lack nvJPEG; then this fails.
"""

import io
import statistics
import sys
import time

import gpu_photos
import numpy as np
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg  # pyright: ignore[reportMissingImports]


def main():
    n, rounds, dry_run = int(sys.argv[1]), int(sys.argv[2]), "--dry-run" in sys.argv
    files = [path.read_bytes() for path in gpu_photos.make(n)]
    encoded = [torch.frombuffer(bytearray(f), dtype=torch.uint8) for f in files]

    def decode():
        images = decode_jpeg(encoded, mode=ImageReadMode.RGB, device="cpu" if dry_run else "cuda")
        if not dry_run:
            torch.cuda.synchronize()
        return images

    first = [np.moveaxis(x.cpu().numpy(), 0, -1).astype(np.int32) for x in decode()[:32]]
    references = [np.asarray(Image.open(io.BytesIO(f)).convert("RGB"), np.int32) for f in files[:32]]
    difference = np.mean([np.abs(a - b).mean() for a, b in zip(first, references, strict=True)])
    print(f"nvJPEG's pixels differ from Pillow's by {difference:.2f} on average")
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        decode()
        times.append(time.perf_counter() - begin)
    print(statistics.median(times))


if __name__ == "__main__":
    main()
