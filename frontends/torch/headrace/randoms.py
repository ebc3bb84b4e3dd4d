"""torch.headrace: random numbers. A device's state is a seed and how many random operations have drawn from it."""

import os
import sys

import torch

from headrace._library import _C


def manual_seed(seed):
    """Seeds the current device's generator."""
    _C.seed(None, int(seed) & (2**64 - 1))


def manual_seed_all(seed):
    """Seeds the generators of all devices."""
    for index in range(max(1, _C.device_count())):
        _C.seed(index, int(seed) & (2**64 - 1))


def seed():
    """Seeds the current device's generator with a random number."""
    manual_seed(int.from_bytes(os.urandom(8), "little"))


def seed_all():
    """Seeds the generators of all devices with one random number."""
    manual_seed_all(int.from_bytes(os.urandom(8), "little"))


def initial_seed():
    """The seed of the current device's generator."""
    return _C.random_state()[0]


def get_rng_state(device="headrace"):
    """A generator's state: a uint8 tensor of 16 bytes on the CPU, the seed and the offset."""
    state = b"".join(word.to_bytes(8, sys.byteorder) for word in _C.random_state(device))
    return torch.frombuffer(bytearray(state), dtype=torch.uint8).clone()


def get_rng_state_all():
    """The states of the generators of all devices, as a list."""
    return [get_rng_state(index) for index in range(_C.device_count())]


def set_rng_state(new_state, device="headrace"):
    """Restores a state that `get_rng_state` returned."""
    state = bytes(new_state.cpu().to(torch.uint8).tolist())
    if len(state) != 16:
        raise RuntimeError(f"RNG state is wrong size: {len(state)} bytes, expected 16")
    _C.set_random_state(device, *(int.from_bytes(state[at : at + 8], sys.byteorder) for at in (0, 8)))


def set_rng_state_all(new_states):
    """Restores the states that `get_rng_state_all` returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
