"""The cost of the PyTorch adapter in the training loop.

    python tests/benchmarks/bench_torch.py [--batches 200]

Two iterators over one pipeline of 2 outputs (64 images of 224x224, and labels), one for JAX and one for PyTorch, take
turns. ``next()`` is timed on a full queue, dropping the batch before included; medians. The difference is what the
adapter adds there; the tensors are made before, in the thread that checks batches, whose CPU time for it is printed
too.
"""

import argparse
import pathlib
import statistics
import time


def iterators(folder: pathlib.Path):
    from jaxdali import fn, pipeline_def
    from jaxdali.plugin.jax import DALIGenericIterator as ForJAX
    from jaxdali.plugin.pytorch import DALIGenericIterator as ForTorch

    photos = sorted(str(f) for f in folder.glob("*/*.jpg"))
    files = photos * -(-100_000 // len(photos))  # no epoch ends while time is taken

    @pipeline_def(batch_size=64, num_threads=2, seed=0)
    def define():
        jpegs, labels = fn.readers.file(files=files, random_shuffle=True, name="reader")
        images = fn.decoders.image(jpegs, device="mixed")
        return fn.resize(images, size=(224, 224)), labels.gpu()

    return {kind.__module__: kind(define(), ["images", "labels"], reader_name="reader") for kind in (ForJAX, ForTorch)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "examples" / "images")
    args = parser.parse_args()

    from jaxdali.plugin.pytorch import _iterator

    making: list[float] = []

    def timed(self, graph, arrays, make=_iterator._TensorMaker.__call__):
        start = time.thread_time()
        tensors = make(self, graph, arrays)
        making.append(time.thread_time() - start)
        return tensors

    _iterator._TensorMaker.__call__ = timed
    iterators_by_name = iterators(args.data)
    batches = {name: next(it) for name, it in iterators_by_name.items()}
    times: dict[str, list[float]] = {name: [] for name in iterators_by_name}
    for _ in range(args.batches):
        for name, it in iterators_by_name.items():
            runner = it._stream.lease.runners[0]
            # Until the queue of finished batches is full.
            while runner._free_slots._value or not runner._dispatched_items.empty():
                time.sleep(0.001)
            time.sleep(0.005)
            start = time.perf_counter()
            batches[name] = next(it)  # drops the one before
            times[name].append(time.perf_counter() - start)
    jax, torch = (1e3 * statistics.median(t) for t in times.values())
    print("| | median | target |\n|---|--:|--:|")
    print(f"| next() for JAX, on a full queue | {jax:.3f} ms | |")
    print(f"| next() for PyTorch, on a full queue | {torch:.3f} ms | |")
    print(f"| the PyTorch adapter adds | {torch - jax:.3f} ms | 0.2 ms |")
    print(f"| making the tensors, in the checking thread | {1e3 * statistics.median(making):.3f} ms | |")


if __name__ == "__main__":
    main()
