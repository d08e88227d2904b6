"""Damages containers, and reads them."""

from jaxdali import SampleError, pipeline_def


def labels(define, batches=1, batch_size=1, **arguments):
    """Returns the first output of some batches, None for one that fails, and the errors."""

    @pipeline_def(batch_size=batch_size, num_threads=2, prefetch_queue_depth=1)
    def pipeline():
        return define()

    pipe = pipeline(**arguments)
    labels_of_batches, errors = [], []
    for _ in range(batches):
        try:
            labels_of_batches.append(pipe.run()[0].as_array().ravel().tolist())
        except SampleError as e:
            labels_of_batches.append(None)
            errors.append(str(e))
    bad = pipe.bad_samples()
    pipe.close()
    return labels_of_batches, errors, bad


def damage(path, at, value):
    content = bytearray(path.read_bytes())
    content[at : at + len(value)] = value
    path.write_bytes(content)
