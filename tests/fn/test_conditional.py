"""fn._conditional: split and merge, as in DALI 2.4."""

import numpy as np
import pytest

from jaxdali import OperatorError, Pipeline, fn, pipeline_def, types

N = 4


def numbers():
    return fn.external_source(lambda: [np.full((i + 1,), i, np.int32) for i in range(N)])


def even():
    return fn.external_source(lambda: [np.bool_(i % 2 == 0) for i in range(N)])


def both_sides():
    p = even()
    yes, no = fn._conditional.split(numbers(), predicate=p)
    return fn._conditional.merge(yes + 10, no * 2, predicate=p)


def one_predicate_for_two_values():
    """Both values can be combined, also with values of all samples."""
    p, x = even(), numbers()
    yes, no = fn._conditional.split(x, predicate=p)
    scaled_yes, _ = fn._conditional.split(x * 100, predicate=p)
    return fn._conditional.merge(yes + scaled_yes + x, fn.cast(no, dtype=types.INT32), predicate=p)


def nested():
    p, q = even(), fn.external_source(lambda: [np.float32(i < 2) for i in range(N)])
    yes, no = fn._conditional.split(numbers(), predicate=p)
    q_yes, _ = fn._conditional.split(q, predicate=p)
    first, second = fn._conditional.split(yes, predicate=q_yes)
    inner = fn._conditional.merge(first + 1000, second + 2000, predicate=q_yes)
    return fn._conditional.merge(inner, no, predicate=p)


def lists():
    p, x = even(), numbers()
    yes, no = fn._conditional.split([x, x + 1], predicate=p)
    return fn._conditional.merge(yes, no, predicate=p)[1]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("define", "want"),
    [
        (both_sides, [10, 2, 12, 6]),
        (one_predicate_for_two_values, [0, 1, 204, 3]),
        (nested, [1000, 1, 2002, 3]),
        (lists, [1, 2, 3, 4]),
    ],
)
def test_split_and_merge(define, want, device):
    @pipeline_def(batch_size=N, num_threads=1)
    def pipeline():
        x = define()
        return x.gpu() if device == "gpu" else x

    pipe = pipeline()
    for _ in range(2):
        (out,) = pipe.run()
        assert [np.unique(np.asarray(out.at(i))).tolist() for i in range(N)] == [[x] for x in want]
        assert [np.asarray(out.at(i)).shape for i in range(N)] == [(i + 1,) for i in range(N)]


def test_functions_see_their_part_alone():
    values = []

    def record(x):
        values.append(int(x[0]))
        return x

    @pipeline_def(batch_size=N, num_threads=1)
    def pipeline():
        p = even()
        yes, no = fn._conditional.split(numbers(), predicate=p)
        return fn._conditional.merge(fn.python_function(yes, function=record), no, predicate=p)

    pipe = pipeline(exec_pipelined=False)
    pipe.run()
    assert sorted(set(values)) == [0, 2]


def test_serialized():
    with Pipeline(batch_size=N, num_threads=1) as pipe:
        x = fn.external_source(name="x")
        p = fn.external_source(name="p")
        yes, no = fn._conditional.split(x, predicate=p)
        pipe.set_outputs(fn._conditional.merge(yes + 10, no * 2, predicate=p))
    restored = Pipeline.deserialize(pipe.serialize())
    for pipeline in (pipe, restored):
        pipeline.feed_input("x", np.arange(N, dtype=np.int32))
        pipeline.feed_input("p", np.arange(N) % 2 == 0)
    assert [np.asarray(pipeline.run()[0].as_array()).tolist() for pipeline in (pipe, restored)] == [[10, 2, 12, 6]] * 2


def test_values_of_other_samples_are_refused():
    @pipeline_def(batch_size=N)
    def define(use):
        p = even()
        return use(*fn._conditional.split(numbers(), predicate=p), p)

    for use in (
        lambda yes, no, p: fn._conditional.merge(no, yes, predicate=p),
        lambda yes, no, p: fn.cat(yes, no),
        lambda yes, no, p: yes,
        lambda yes, no, p: fn._conditional.merge(yes, no, predicate=even()),
    ):
        with pytest.raises(OperatorError, match="so not for all samples"):
            define(use).build()


def test_not_and_checked_sides():
    @pipeline_def(batch_size=N, num_threads=1)
    def define():
        p = even()
        return fn._conditional.not_(p), fn._conditional.validate_logical(
            p, expression_name="or", expression_side="right"
        )

    negated, checked = define().run()
    assert (negated.as_array().tolist(), checked.as_array().tolist()) == ([False, True] * 2, [True, False] * 2)
    with pytest.raises(RuntimeError, match="the left side must be a truth value"):
        pipeline_def(batch_size=N)(
            lambda: fn._conditional.validate_logical(numbers()[0], expression_name="and", expression_side="left")
        )().build()
