"""Small pipelines with conditionals."""

import numpy as np

from jaxdali import fn, pipeline_def


def numbers(dtype=np.int32, start=0):
    """0, 1, 2, 0, 1, 2."""
    return fn.external_source(lambda: ((np.arange(6) + start) % 3).astype(dtype))


def outputs(define, n=1, **arguments):
    """The outputs of the last of n batches, as lists."""
    pipe = pipeline_def(
        define, **{"batch_size": 6, "num_threads": 2, "seed": 1, "enable_conditionals": True, **arguments}
    )()
    for _ in range(n - 1):
        pipe.run()
    batches = [[np.asarray(x).tolist() for x in output.as_cpu()] for output in pipe.run()]
    pipe.close()
    return batches
