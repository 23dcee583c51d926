"""Steps that crash, hang and raise, for the process that runs them."""

import os
import signal
import threading
from typing import Any

import zerohop as zh
from zerohop.verify.adapter.step import Figures, Impossible, Steps

STEPS = Steps()


@STEPS.add("first", "It passes.")
def first(setup: Any) -> Figures:
    return {"pid": os.getpid()}


@STEPS.add("crashes", "Nothing.", needs=("first",))
def crashes(setup: Any) -> Figures:
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


@STEPS.add("behind it", "Nothing.", needs=("first", "crashes"))
def behind(setup: Any) -> Figures:
    return {}


@STEPS.add("hangs", "Nothing.", seconds=0.5)
def hangs(setup: Any) -> Figures:
    threading.Event().wait()
    return {}


@STEPS.add("raises", "Nothing.")
def raises(setup: Any) -> Figures:
    raise ZeroDivisionError("a bug")


@STEPS.add("errs", "Nothing.")
def errs(setup: Any) -> Figures:
    raise zh.VerbsError("the device says no", 5)


@STEPS.add("cannot", "Nothing.")
def cannot(setup: Any) -> Figures:
    raise Impossible("the device has none", "another device")


@STEPS.add("behind what cannot", "Nothing.", needs=("cannot",))
def behind_what_cannot(setup: Any) -> Figures:
    return {}


@STEPS.add("last", "It passes.", needs=("first",))
def last(setup: Any) -> Figures:
    return {"pid": os.getpid()}
