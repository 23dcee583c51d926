"""Kernels that communicate by themselves, for the tests: compiled by Numba."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import config
from zerohop import numba as zn

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # grids of one block are what is wanted

BYTES, WORDS, LONGS = "uint8[::1]", "int32[::1]", "uint64[::1]"


def moves(queue, team, to, start, nbytes, said):
    """Puts twice, behind each other, and gets the second one back, behind what was put."""
    first = zn.put(queue, to, start, nbytes, team)
    flushed = zn.flush(queue, zn.PATIENCE, team)
    second, ticket = zn.put_ticket(queue, to + nbytes, start, nbytes, team)
    placed = zn.wait(queue, ticket, zn.PATIENCE, team)
    third = zn.get(queue, to + nbytes, start + nbytes, nbytes, team)
    there = zn.flush(queue, team=team)
    fourth, ticket = zn.get_ticket(queue, to, start + 2 * nbytes, nbytes, team)
    got = zn.wait(queue, ticket, team=team)
    if cuda.threadIdx.x == 0:
        said[0], said[1], said[2], said[3] = first, flushed, second, placed
        said[4], said[5], said[6], said[7] = third, there, fourth, got


def values(queue, said):
    """One of each type, 8 bytes apart."""
    said[0] = zn.put_value(queue, 0, np.int8(-1))
    said[1] = zn.put_value(queue, 8, np.uint8(200))
    said[2] = zn.put_value(queue, 16, np.int16(-300))
    said[3] = zn.put_value(queue, 24, np.uint16(60000))
    said[4] = zn.put_value(queue, 32, np.int32(-70000))
    said[5] = zn.put_value(queue, 40, np.uint32(4000000000))
    said[6] = zn.put_value(queue, 48, -5000000000)
    said[7] = zn.put_value(queue, 56, np.uint64(1 << 63))
    said[8] = zn.put_value(queue, 64, np.float32(1.5))
    said[9], ticket = zn.put_value_ticket(queue, 72, 2.5)
    said[10] = zn.wait(queue, ticket)


def count_up(queue, offset, times, olds, said):
    """Every thread adds 1 so often; olds gets what each addition found, in any order."""
    thread = cuda.grid(1)
    for i in range(times):
        status, old = zn.fetch_add(queue, offset, np.uint64(1))
        olds[thread * times + i] = old
        if status != zn.Status.OK:
            said[0] = status


def swap(queue, offset, expected, desired, said):
    said[0], said[1] = zn.compare_swap(queue, offset, expected, desired)
    said[2], said[3] = zn.compare_swap(queue, offset, np.int64(desired), np.int64(expected))
    said[4], said[5] = zn.fetch_add(queue, offset, np.int32(0))


def notes(queue, team, slot, said):
    """Four, in slots behind each other."""
    first = zn.notify(queue, slot, 10, team)
    second, ticket = zn.notify_ticket(queue, slot + 1, 11, team)
    third = zn.put_notify(queue, 0, 0, 8, slot + 2, 12, team)
    fourth, ticket = zn.put_notify_ticket(queue, 8, 0, 8, slot + 3, 13, team)
    placed = zn.wait(queue, ticket, team=team)
    if cuda.threadIdx.x == 0:
        said[0], said[1], said[2], said[3], said[4] = first, second, third, fourth, placed


def put_checked(queue, team, nbytes, slot, said):
    status = zn.put_notify_checked(queue, 0, 0, nbytes, slot, team)
    if cuda.threadIdx.x == 0:
        said[0] = status


def wait_checked(board, team, address, nbytes, slot, patience, said):
    status = zn.wait_notify_checked(board, slot, address, nbytes, patience, team)
    if cuda.threadIdx.x == 0:
        said[0] = status


def wait_any(board, team, first, count, patience, said):
    status, slot, value = zn.wait_notify_any(board, first, count, patience, team)
    if cuda.threadIdx.x == 0:
        said[0], said[1], said[2] = status, slot, value


def look(board, slot, patience, said):
    """Waits and leaves it there, looks, and empties the slot; then nothing is there."""
    said[0], said[1] = zn.wait_notify(board, slot, patience, reset=zn.Reset.NO)
    said[2] = zn.peek_notify(board, slot)
    said[3] = zn.reset_notify(board, slot)
    said[4] = zn.peek_notify(board, slot)
    said[5], said[6] = zn.wait_notify(board, slot, 0)


def write_rounds(queue, board, here, rounds, slot, patience, said):
    """One block writes rounds into the other's memory and awaits its answer."""
    for turn in range(1, rounds + 1):
        for i in range(cuda.threadIdx.x, here.size, cuda.blockDim.x):
            here[i] = (turn * 131 + i * 7 + (i >> 8)) & 255
        cuda.syncthreads()
        status = zn.put_notify(queue, 0, 0, here.size, slot, turn, zn.BLOCK)
        value = np.uint32(0)
        if status == zn.Status.OK:
            status, value = zn.wait_notify(board, slot, patience, zn.BLOCK)
        if status != zn.Status.OK or value != turn:
            said[0] = 100 if status == zn.Status.OK else status
            return
    said[0] = zn.Status.OK


def check_rounds(queue, board, here, rounds, slot, patience, said):
    """Every byte, when it was notified. said[1]: how many were not those of the round."""
    for turn in range(1, rounds + 1):
        status, value = zn.wait_notify(board, slot, patience, zn.BLOCK, zn.Reset.ALONE)
        wrong = np.int32(0)
        for i in range(cuda.threadIdx.x, here.size, cuda.blockDim.x):
            wrong += np.int32(here[i] != (turn * 131 + i * 7 + (i >> 8)) & 255)
        if wrong != 0:
            cuda.atomic.add(said, 1, wrong)
        cuda.syncthreads()
        if status == zn.Status.OK and value == turn:
            status = zn.notify(queue, slot, turn, zn.BLOCK)
        if status != zn.Status.OK or value != turn:
            said[0] = 100 if status == zn.Status.OK else status
            return
    said[0] = zn.Status.OK


_ROUNDS = f"void(int64, int64, {BYTES}, int32, int32, int64, {WORDS})"
SIGNATURES: dict[Callable[..., None], str] = {
    moves: f"void(int64, int32, int64, int64, int64, {WORDS})",
    values: f"void(int64, {WORDS})",
    count_up: f"void(int64, int64, int64, {LONGS}, {WORDS})",
    swap: f"void(int64, int64, uint32, uint32, {WORDS})",
    notes: f"void(int64, int32, int32, {WORDS})",
    put_checked: f"void(int64, int32, int64, int32, {WORDS})",
    wait_checked: f"void(int64, int32, int64, int64, int32, int64, {WORDS})",
    wait_any: f"void(int64, int32, int32, int32, int64, {WORDS})",
    look: f"void(int64, int32, int64, {WORDS})",
    write_rounds: _ROUNDS,
    check_rounds: _ROUNDS,
}


def load(*functions: Callable[..., None]) -> list[Any]:
    """The kernels, compiled and on the current GPU now: nothing of them is loaded while another one waits."""
    return [cuda.jit(SIGNATURES[function])(function) for function in functions]
