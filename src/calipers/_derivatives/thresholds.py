"""The numbers by which derivatives are estimated and judged, with their units and sources."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Thresholds:
    """
    All numbers that decide what `differentiate` and `gradcheck` say.

    Attributes
    ----------
    multiple : float
        Standard deviations of the noise in the error of a slope: the best of some fifty scales is
        taken, and each is normally off by less (one in 16 000 by more).
    noise_samples : int
        The shortest steps at which f changes that its noise is the root mean square of. Two
        residuals each; fewer are too few to trust, more are as long as x in float32.
    few_samples : float
        Factor of the noise that the first samples show: where a normal number is 4 with the
        probability of 1 in 16 000, Student's t with 6 degrees of freedom is 8.
    rounding : float
        Least noise in spacings of f: rounding to nearest has a standard deviation of 1/sqrt(12).
    pooled_outputs : int
        Outputs that show noise, from which on its median is that of the others.
    resolving : float
        Tolerances up to which the error may be where analytic and numerical value differ by less
        than one: the bound on the error of what then passes.
    certain : float
        Errors that a wrong entry is off by, in addition to the tolerance.
    telling : float
        Share of the difference between analytic and numerical value, within which the error of a
        scale must be to tell one from the other.
    kink : float
        Errors that a gap of one-sided slopes exceeds at a kink: that of a smooth f is less than
        its error and 1/3 of that, the sum of its changes at all shorter scales.
    abrupt : float
        Power of the growth of f's departure from a line, per halved step, that no smooth function
        has from one step to the next: the growth of exp(exp(t)) is squared.
    known : float
        Relative error within which the slope at scales below |x| is known, so that longer ones
        may refine it.
    visible : float
        Standard deviations from which on a slope, or a gap, is not noise.
    negligible : float
        Share of the tolerance of an entry of natural size that makes no difference.
    first : float
        Power of eps: relative error with which the first samples suffice.
    first_rounding : float
        The same in spacings of f over the size of x.
    noisy : float
        Spacings of f from which on it is called noisy.
    constant : float
        Share of |x| within which f does not change, where a claim of 0 is right: half of the digits
        of float64. At shorter steps rounding may hide every change.
    screened : float
        Share of the tolerance that an entry may be off by in the slopes of screening, which have no
        error.
    bend : float
        Share of the slope by which both one-sided slopes may differ in screening: more may be a
        kink.
    curvature : float
        The least `bend`, in eps**(1/3): curvature by 1/|x| makes one of the relative step.
    screening_noise : float
        Spacings of f by which values in screening may be off: the same differences are no kinks.
    rtol, rtol_single : float
        Default tolerances, of the numerical value, in double and in lower precision: a hundred
        times what differences resolve, which is eps**(2/3).
    """

    multiple: float = 4.0
    noise_samples: int = 8
    few_samples: float = 2.0
    rounding: float = 0.3
    pooled_outputs: int = 3
    resolving: float = 8.0
    certain: float = 2.0
    telling: float = 0.1
    kink: float = 2.0
    abrupt: float = 4.0
    known: float = 0.1
    visible: float = 8.0
    negligible: float = 2.0**-7
    first: float = 0.6
    first_rounding: float = 64.0
    noisy: float = 32.0
    constant: float = 2.0**-26
    screened: float = 0.1
    bend: float = 0.03
    curvature: float = 16.0
    screening_noise: float = 64.0
    rtol: float = 1e-6
    rtol_single: float = 5e-3


THRESHOLDS = Thresholds()


def is_double(eps: float) -> bool:
    """Return whether numbers with a spacing at 1 have at least the digits of float64."""
    return eps <= float(np.finfo(np.float64).eps)


def least_normal(eps: float) -> float:
    """Return the smallest normal number; the spacing of smaller ones is the same."""
    return float(np.finfo(np.float64 if is_double(eps) else np.float32).tiny)
