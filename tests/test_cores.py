"""The replay of tests/benchmarks/cores.py, on recordings whose results are known."""

import sys

import places
import pytest

sys.path.insert(0, str(places.ROOT / "tests" / "benchmarks"))
from cores import Made, Work, arranged, replay, with_serial, Span  # noqa: I001


def batch(prepare=0.0, tasks=(), dispatch=0.0, check=0.0, user=0.0, read=0.0):
    return Made([Work(read)], [Work(prepare)], [Work(dispatch)], [Work(0.0, tasks)], [Work(check)], [Work(user)])


@pytest.mark.parametrize(
    ("made", "cores", "options", "period"),
    [
        (batch(30.0, [10.0] * 10), 1, {}, 130.0),
        (batch(0.0, [10.0] * 12), 4, {}, 30.0),
        (batch(30.0, [1.0] * 64), 64, {"launches": 3, "slots": 4}, 30.0),  # the producing thread
        (
            Made(
                [Work(0.0, [30.0])], [Work(0.0, [20.0])], [Work(0.0)], [Work(0.0, [1.0] * 64)], [Work(0.0)], [Work(0.0)]
            ),
            64,
            {},
            30.0,
        ),
        (batch(20.0, [1.0] * 8, check=15.0, user=5.0), 8, {"launches": 3, "slots": 4}, 40.0),  # the interpreter's lock
        # Without it.
        (batch(20.0, [1.0] * 8, check=15.0, user=5.0), 8, {"launches": 3, "slots": 4, "lock": False}, 20.0),
        (batch(0.0, [40.0] + [1.0] * 40), 5, {"launches": 1}, 40.0),  # threads wait for the slowest task
        (batch(0.0, [40.0] + [1.0] * 40), 5, {"launches": 2}, 22.0),  # or begin the next batch
        (batch(0.0, [40.0], dispatch=10.0), 8, {"launches": 1}, 50.0),  # one batch after another
        (batch(10.0, [40.0]), 8, {"launches": 1}, 40.0),  # but for what is prepared meanwhile
    ],
)
def test_time_per_batch(made, cores, options, period):
    assert 1 / replay([made], cores, **options).speed == pytest.approx(period, rel=0.06)


def test_limiting_stage():
    assert replay([batch(1.0, [10.0] * 100)], 2).bound == "cores"
    assert replay([batch(50.0, [1.0] * 10)], 16, launches=4, slots=6).bound in ("producing thread", "interpreter")
    assert replay([batch(0.0, [40.0], dispatch=10.0)], 8, launches=1).bound == "batches wait for each other"


def test_urgent_jobs_do_not_wait():
    """The job of the producing thread, which the next launch needs, goes before the images of the batch that runs."""
    batches = [
        Made(
            [Work(0.0)],
            [Work(1.0, [5.0] * 4), Work(1.0)],
            [Work(0.0)],
            [Work(0.0, [10.0] * 40)],
            [Work(0.0)],
            [Work(0.0)],
        )
    ]
    assert replay(batches, 4, urgent=True).producing < replay(batches, 4, urgent=False).producing


def test_recordings_are_arranged():
    """Times by a thread's CPU clock: work alone and tasks take turns, and what a call in the pool took is not counted
    as alone.
    """
    rows = [  # call, task, thread, begin, end, CPU at begin and end
        (1, 0, 7, 10, 14, 110, 114), (1, 1, 9, 11, 14, 500, 503), (1, -1, 7, 9, 15, 109, 115),
        (2, 0, 9, 30, 50, 600, 620), (2, -1, 8, 29, 51, 0, 22),
    ]  # fmt: skip
    spans = {
        "read": [Span(7, 100, 120)], "prepare": [Span(7, 120, 126)], "dispatch": [Span(7, 127, 130)],
        "check": [Span(6, 0, 3)], "next": [Span(5, 0, 2)],
    }  # fmt: skip
    (recorded,) = arranged(rows, spans, {7: 26, 8: 25, 6: 3, 5: 2}, 0)
    assert (recorded.read, recorded.prepare, recorded.dispatch) == ([Work(9, (4, 3)), Work(5)], [Work(6)], [Work(3)])
    assert recorded.xla == [Work(3.0), Work(0.0, (20,))]
    assert (recorded.check, recorded.user) == ([Work(3)], [Work(2)])


def test_another_cost_of_serial_work():
    """On average of all batches; tasks stay as they are."""
    scaled = with_serial([batch(30.0, [10.0] * 4, check=10.0), batch(100.0, [20.0], user=20.0)], 40.0)
    assert scaled == [batch(15.0, [10.0] * 4, check=5.0), batch(50.0, [20.0], user=10.0)]
