"""Processes that fork after they have used arrays: a child goes on. An alarm ends a child that hangs."""

import multiprocessing
import os
import signal
import sys

import headrace as hr
import numpy as np
import pytest

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="fork is Linux's default start method"),
    pytest.mark.skipif(not hr.device().startswith("cpu"), reason="a GPU stays with the parent"),
]


def forked(function):
    """Runs function() in a child; True if it returned true."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os._exit(0 if function() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def ones(size):
    return hr.array(np.ones((size, size), np.float32))


def test_a_child_has_values_from_before_and_runs_programs_old_and_new():
    x = ones(200)
    product = x @ x + 1
    assert np.asarray(product)[0, 0] == 201
    for i in range(1, 9):
        in_flight, recorded = hr.cos(x * 0) * i + x @ x, x * i

        def work():
            old = np.asarray(x @ x + 1) == 201
            new = np.asarray(hr.maximum(x @ product * i, recorded) - in_flight)
            return (
                old.all()
                and (np.asarray(in_flight) == 200 + i).all()
                and (np.asarray(recorded) == i).all()
                and (new == 200 * 201 * i - 200 - i).all()
            )

        if i % 2 == 0:
            hr.eval(in_flight)
        assert forked(work)
        assert (np.asarray(in_flight) == 200 + i).all() and (np.asarray(recorded) == i).all()


def test_a_child_compiles_graphs():
    x = ones(50)
    before = hr.compile(lambda x: hr.sum(x * 2, axis=0))
    assert np.asarray(before(x))[0] == 100
    assert forked(lambda: (np.asarray(before(x)) == 100).all())
    assert forked(lambda: (np.asarray(hr.compile(lambda x: hr.sum(x * 3 + 1, axis=1))(x)) == 200).all())


def _row_sum(i):
    signal.alarm(60)
    return float(np.asarray(hr.sum(ones(20) * i)))


def test_a_pool_of_forked_processes_works():
    assert float(np.asarray(hr.sum(ones(20)))) == 400
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_row_sum, range(6)) == [400.0 * i for i in range(6)]


def test_a_childs_child_works():
    x = ones(30)
    assert np.asarray(x + 1)[0, 0] == 2
    assert forked(lambda: np.asarray(x * 3)[0, 0] == 3 and forked(lambda: np.asarray(x @ x * 5)[0, 0] == 150))
