"""Checks of this machine, each with evidence and remedy.

>>> from zerohop import doctor
>>> [finding for finding in doctor.examine(doctor.Host()) if finding.state == "fail"]
[]
"""

from zerohop.doctor.checks import CHECKS, examine
from zerohop.doctor.finding import Finding, State
from zerohop.doctor.host import Host
from zerohop.doctor.routes import ROUTES, Verdict, judge

__all__ = ["CHECKS", "ROUTES", "Finding", "Host", "State", "Verdict", "examine", "judge"]
