"""The derivatives of torch's database of ops, in float32 and float64.

Inputs, options and skipped ops are those of torch's own tests of gradients.
"""

import unittest
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_device_type import (
    OpDTypes,
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestGradients
from torch.testing._internal.opinfo.core import OpInfo

from .checks import Claim, Problem

_real = partial(ops, dtypes=OpDTypes.supported, allowed_dtypes=[torch.double, torch.float])


class _Recorder:
    """Stands in for torch.autograd.gradcheck, and keeps what it is called with."""

    def __init__(self) -> None:
        self.test = ""
        self.problems: list[Problem] = []

    def __call__(self, f: Any, inputs: Any, *args: Any, **options: Any) -> bool:
        number = sum(problem.name.startswith(f"{self.test} #") for problem in self.problems)
        claim = Claim("right", None, ("all",), "", options)
        self.problems.append(Problem(f"{self.test} #{number}", f, inputs, None, [claim]))
        return True


recorder = _Recorder()


# OpInfo's skips go by these names.
class TestBwdGradients(TestGradients):  # type: ignore[misc]
    @_real(op_db)
    def test_fn_grad(self, device: Any, dtype: Any, op: Any) -> None:
        self._skip_helper(op, device, dtype)
        recorder.test = f"torch_ops:{str(dtype).removeprefix('torch.')} {op.formatted_name}"
        self._grad_test_helper(device, dtype, op, op.get_op())


instantiate_device_type_tests(TestBwdGradients, globals(), only_for=("cpu",))


def torch_ops(samples: int, every: int) -> Iterator[Problem]:
    """Return the checks of every `every`-th op, with at most `samples` inputs each."""
    inputs, check = OpInfo.sample_inputs, torch.autograd.gradcheck
    threads = torch.get_num_threads()
    recorder.problems.clear()
    try:
        OpInfo.sample_inputs = lambda *args, **kwargs: islice(inputs(*args, **kwargs), samples)
        torch.autograd.gradcheck = recorder
        torch.set_num_threads(1)
        tests = unittest.defaultTestLoader.loadTestsFromTestCase(globals()["TestBwdGradientsCPU"])
        for test in islice(tests, 0, None, every):
            method = getattr(test, test._testMethodName)
            if getattr(method, "__unittest_expecting_failure__", False):
                continue  # torch knows the derivative to be wrong
            test.run(unittest.TestResult())
            yield from recorder.problems
            recorder.problems.clear()
    finally:
        OpInfo.sample_inputs, torch.autograd.gradcheck = inputs, check
        torch.set_num_threads(threads)
