"""A torch.autograd.Function: its gradient, and the gradient of that."""

import sys

try:
    import torch
except ImportError:
    sys.exit("this example needs torch: pip install torch")

import calipers


class Cube(torch.autograd.Function):
    """x**3, whose second derivative torch takes of `backward`."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, w):
        (x,) = ctx.saved_tensors
        return 3 * w * x**2


class Off(Cube):
    """The same, a thousandth too large: torch's own gradcheck accepts that."""

    @staticmethod
    def backward(ctx, w):
        return 1.001 * Cube.backward(ctx, w)


x = torch.linspace(0.5, 2, 4, dtype=torch.double, requires_grad=True)
print(calipers.gradcheck(Cube.apply, (x,)))
print(calipers.gradgradcheck(Cube.apply, (x,)).reason)
print("\nOff, torch.autograd.gradcheck:", torch.autograd.gradcheck(Off.apply, (x,)))
print(calipers.gradcheck(Off.apply, (x,), raise_exception=False))
