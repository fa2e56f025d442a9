"""Right derivatives of torch's own operations, where something else was taken for an error."""

import pytest

import calipers

torch = pytest.importorskip("torch")
functional = torch.nn.functional
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning"),  # by forward mode
    pytest.mark.filterwarnings("ignore:gradcheck compared nothing"),  # where all slopes are 0
]


def leaf(*numbers, dtype=None):
    return torch.tensor(numbers, dtype=dtype or torch.double).requires_grad_()


def random(*shape, dtype=torch.double):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def checked(f, *inputs, **options):
    return calipers.gradcheck(f, inputs, raise_exception=False, **options)


def twice(f, *inputs):
    return calipers.gradgradcheck(f, inputs, raise_exception=False)


def test_vmap_may_round_otherwise_than_the_function():
    def loss(x):
        target = torch.ones_like(x)
        return functional.binary_cross_entropy_with_logits(x, target, reduction="none")

    x = torch.linspace(-9, 9, 40, dtype=torch.double).requires_grad_()
    assert checked(loss, x).verdict == "PASS"
