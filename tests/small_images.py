"""Pipelines of one function over small images, whose shape is known when they are built."""

import numpy as np
from images import encode

from jaxdali import fn, pipeline_def
from jaxdali._pipeline.pipeline import internals_of

SMALL = np.random.default_rng(0).integers(0, 255, (4, 8, 9, 3), np.uint8)


def images():
    encoded = [np.frombuffer(encode(x, "PNG"), np.uint8) for x in SMALL]
    return fn.resize(fn.decoders.image(fn.external_source(source=lambda: encoded)), size=(8, 9))


def run(define, n=2, **options):
    """Outputs of n batches of a pipeline over SMALL, static in shape; and the pipeline."""

    @pipeline_def(batch_size=4, num_threads=1, seed=1, **options)
    def definition():
        return define(images())

    pipe = definition()
    batches = [[np.array(o.as_array()) for o in pipe.run()] for _ in range(n)]
    return batches, pipe


def is_inline(pipe):
    text = pipe.lower().as_text()  # of a decoder and a resize, one call in a program on the CPU
    return internals_of(pipe).session.executor.programs() == 1 and (
        "custom_call @jaxdali_chain" in text or "custom_call @jaxdali_resize" in text
    )
