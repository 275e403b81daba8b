"""Who is right: adapters, the judge of the five levels, checks, reports and the command line."""

from conformance.adapter import Adapter, Claims
from conformance.check import check
from conformance.judge import judge
from conformance.run import Failure, Run, StepReport

__all__ = ["Adapter", "Claims", "Failure", "Run", "StepReport", "check", "judge"]
