"""CPU time that an iterator's process spends on batches that Ray's workers make, per image of 224x224x3 bytes.

    python tests/benchmarks/bench_ray.py FOLDER [--workers 2] [--images 1536]

FOLDER holds photos as `photos.py` makes them. The first batches, which compile and start the workers, are not counted.
"""

import argparse
import pathlib
import time

import ray

from jaxdali import fn
from jaxdali.plugin.jax import data_iterator
from jaxdali.ray import Workers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=1536)
    args = parser.parse_args()

    @data_iterator(output_map=["images", "labels"], reader_name="reader", repeat=True)
    def photos():
        files, labels = fn.readers.file(file_root=str(args.folder), random_shuffle=True, name="reader")
        return fn.resize(fn.decoders.image(files), size=(224, 224)), labels

    ray.init("local", num_cpus=2 * args.workers, include_dashboard=False, log_to_driver=False)
    for batch_size in (64, 256):
        for workers in (Workers(num_workers=args.workers), None):
            with photos(batch_size=batch_size, num_threads=2, seed=0, workers=workers) as iterator:
                for _ in range(5):
                    next(iterator)
                cpu, batches = time.process_time(), args.images // batch_size
                for _ in range(batches):
                    next(iterator)
                per_image = 1e3 * (time.process_time() - cpu) / batches / batch_size
            print(
                f"batches of {batch_size}, {'workers' if workers else 'without'}: {per_image:.3f} ms of CPU an image in this process"
            )
    ray.shutdown()


if __name__ == "__main__":
    main()
