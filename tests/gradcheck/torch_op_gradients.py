"""
The gradient tests of torch's op database, by torch and by calipers.

Run as ``python -m tests.gradcheck.torch_op_gradients REPORT SAMPLES EVERY``: every EVERY-th test,
with at most SAMPLES of the sample inputs of an op. REPORT gets a line of JSON for each check. The
inputs, the options and the skipped tests are those of torch's test_ops_gradients.
"""

import json
import sys
import unittest
import warnings
from functools import partial
from itertools import islice

import torch
from torch.testing._internal.common_device_type import (
    OpDTypes,
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestGradients
from torch.testing._internal.opinfo.core import OpInfo

import calipers

_in_double = partial(ops, dtypes=OpDTypes.supported, allowed_dtypes=[torch.double])


def verdict_of(check, *args, **kwargs):
    """Return the verdict of a check with its reason, and what it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            report = check(*args, **kwargs)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:500], error
    return ("PASS" if report else f"{report.verdict}: {report.reason}"[:500]), None


class Comparison:
    """Checks by torch that calipers repeats."""

    def __init__(self):
        self.report = None
        self.test = ""

    def of(self, name):
        """Return a check of torch that is repeated, and reported."""
        torchs, own = getattr(torch.autograd, name), getattr(calipers, name)
        # torch's gradgradcheck does not look at first derivatives.
        alone = {"first_order": False} if name == "gradgradcheck" else {}

        def compared(f, inputs, *args, **kwargs):
            expected, error = verdict_of(torchs, f, inputs, *args, **kwargs)
            told, _ = verdict_of(own, f, inputs, *args, **kwargs, **alone, raise_exception=False)
            numbers = [x.numel() for x in inputs]
            note = {"test": self.test, "numbers": numbers, "torch": expected, "calipers": told}
            print(json.dumps(note), file=self.report, flush=True)
            if error is not None:
                raise error
            return True

        return compared


comparison = Comparison()


# OpInfo's skips go by these names.
class TestBwdGradients(TestGradients):
    @_in_double(op_db)
    def test_fn_grad(self, device, dtype, op):
        self._skip_helper(op, device, dtype)
        comparison.test = f"{op.formatted_name} gradcheck"
        self._grad_test_helper(device, dtype, op, op.get_op())

    @_in_double(op_db)
    def test_fn_gradgrad(self, device, dtype, op):
        self._skip_helper(op, device, dtype)
        if not op.supports_gradgrad:
            self.skipTest("The op has no second derivative.")
        comparison.test = f"{op.formatted_name} gradgradcheck"
        self._check_helper(device, dtype, op, op.get_op(), "bwgrad_bwgrad")


instantiate_device_type_tests(TestBwdGradients, globals(), only_for=("cpu",))


def main(path, samples, every):
    sample_inputs = OpInfo.sample_inputs
    OpInfo.sample_inputs = lambda *args, **kwargs: islice(sample_inputs(*args, **kwargs), samples)
    for name in ("gradcheck", "gradgradcheck"):
        setattr(torch.autograd, name, comparison.of(name))
    torch.set_num_threads(1)
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(globals()["TestBwdGradientsCPU"])
    with open(path, "w") as comparison.report:
        for test in islice(tests, 0, None, every):
            test.run(unittest.TestResult())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
