"""The cost of the host pass: CPU time per batch of 8 of a pipeline of n pointwise operators on scalars.

python tests/benchmarks/bench_host_pass.py [--batches 300]
"""

import argparse
import time

import jax


def per_batch(operators: int, batches: int) -> float:
    """CPU seconds of this thread, which makes the batches itself."""
    from jaxdali import fn, pipeline_def
    from jaxdali._pipeline.pipeline import internals_of

    @pipeline_def(batch_size=8, exec_pipelined=False, seed=0)
    def pipeline():
        x = fn.random.uniform(range=(0.0, 1.0))
        for i in range(operators):
            x = x * 0.9 + 0.1 if i % 2 else fn.cast(x > 0.5, dtype=jax.numpy.float32) if i % 50 == 48 else x - 0.25
        return x

    pipe = pipeline()
    for _ in range(10):
        pipe.run()
    nodes = len(internals_of(pipe).graph.nodes)
    best = float("inf")
    for _ in range(5):
        start = time.thread_time()
        for _ in range(batches // 5):
            pipe.run()
        best = min(best, (time.thread_time() - start) / (batches // 5))
    pipe.close()
    print(f"| {nodes} operators | {1e3 * best:.2f} ms |")
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=300)
    args = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    print("| | CPU time per batch |\n|---|--:|")
    for operators in (1, 13, 133, 266):
        per_batch(operators, args.batches)


if __name__ == "__main__":
    main()
