"""Schedules: functions of the step, a number or an array, whose results are learning rates.

    hr.optimizers.SGD(hr.optimizers.cosine_decay(0.1, 1000))
"""

import math

from headrace import _arrays


def _check(who, name, value):
    if value < 1:
        raise ValueError(f"{who}: {name} is {value}, expected 1 or more")


def exponential_decay(init, decay_rate):
    """init * decay_rate^step."""
    return lambda step: init * decay_rate**step


def step_decay(init, decay_rate, step_size):
    """init * decay_rate^(step // step_size)."""
    _check("step_decay", "step_size", step_size)
    return lambda step: init * decay_rate ** (step // step_size)


def cosine_decay(init, decay_steps, end=0.0):
    """From init to end in decay_steps steps, as half a turn of a cosine."""
    _check("cosine_decay", "decay_steps", decay_steps)

    def schedule(step):
        turned = _arrays.cos(_arrays.minimum(_arrays.asarray(step), decay_steps) * (math.pi / decay_steps))
        return end + 0.5 * (1 + turned) * (init - end)

    return schedule


def linear_schedule(init, end, steps):
    """From init to end in a line, of as many steps."""
    _check("linear_schedule", "steps", steps)
    return lambda step: _arrays.minimum(_arrays.asarray(step), steps) * ((end - init) / steps) + init


def join_schedules(schedules, boundaries):
    """Schedules one after the other: the next one begins at each boundary, with step 0."""
    if len(schedules) == 0 or len(schedules) != len(boundaries) + 1:
        raise ValueError(f"join_schedules: {len(schedules)} schedules and {len(boundaries)} boundaries, expected one less")

    def schedule(step):
        result = schedules[0](step)
        for boundary, following in zip(boundaries, schedules[1:]):
            result = _arrays.where(_arrays.asarray(step < boundary), result, following(step - boundary))
        return result

    return schedule
