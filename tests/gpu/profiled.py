"""One batch of decoding and of the fused kernels, for Nsight Compute.

    ncu --clock-control none --kernel-name-base demangled -k regex:jaxdali --section LaunchStats --section Occupancy \
        --section SpeedOfLight --section WarpStateStats --section MemoryWorkloadAnalysis python tests/gpu/profiled.py [--dry-run]

It says for each launch what limits it. All inputs are those of timings.py.
"""

import sys

import first
import jax
import measuring

from jaxdali import fn


def eval_pipeline(names, num_shards=1, shard_id=0):
    labels = list(range(len(names)))
    jpegs, labels = fn.readers.file(files=names, labels=labels, num_shards=num_shards, shard_id=shard_id, name="reader")
    images = fn.resize(fn.decoders.image(jpegs, device="mixed"), resize_shorter=256)
    numbers = {"mean": [124.0, 116.0, 104.0], "std": [58.0, 57.0, 57.0]}
    return fn.crop_mirror_normalize(images, crop=(224, 224), output_layout="HWC", **numbers), labels.gpu()


def main():
    sys.path[:0] = [str(measuring.REPOSITORY / "tests"), str(measuring.REPOSITORY / "tests" / "benchmarks")]
    for define in (first.train_pipeline, eval_pipeline, first.tutorial_pipeline):
        with first.iterator(define, first.gpu(), first.files()[: first.BATCH], num_threads=4, prefetch_queue_depth=1) as it:
            jax.block_until_ready(next(it))
        print(define.__name__, flush=True)


if __name__ == "__main__":
    main()
