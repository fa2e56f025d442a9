"""The numbers by which `diagnose` judges two implementations, with their units and sources."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """
    All numbers that decide a verdict of `diagnose`.

    An error is in units of the expected rounding error of its result, the change that 1-ulp
    perturbations of the operands cause. "Pairs" are the labelled pairs of the tests.

    Attributes
    ----------
    base : float
        The limit of an error is base + sqrt(n) for sums of n terms: 2.4 times the error of a sum
        with probability 95 % (Higham and Mary, SISC 41 (2019)); benign pairs are below 0.8 of it.
    single : float
        Factor on the limit for a single one of up to a million results: a normal number exceeds
        five standard deviations in one of them.
    perturbations : int
        Perturbations that estimate the expected rounding error: it is then right within a factor
        of 1.8 with probability 95 %.
    above : float
        Ulps of perturbations in the working precision, compared with which rounding of the results
        is small.
    ill_conditioned : float
        Condition number from which rounding of the inputs decides the error: two digits are lost.
    insensitive : float
        Condition number below which 1-ulp perturbations have no effect.
    far : float
        Relative perturbation that redraws rounding errors of every supported format.
    redraw : float
        Ulps of a perturbation that redraws all rounding errors of the working precision.
    of_sums : float
        Ulps of the terms, for each term, that redraw the rounding errors of a sum.
    coarse : float
        Ulps: noise of a lower precision changes at perturbations of at least this size, as tf32
        has 2**13 times fewer steps than float32, and rounding in many places changes sooner.
    persistent : float
        Cosine of f - g at two inputs that rounding errors do not reach: with 16 differences theirs
        exceeds 0.9 in one of 10**7 draws.
    unrelated : float
        Cosine below which two differences have nothing in common.
    systematic : float
        Persistent part of a difference within rounding that rounded constants do not cause.
    draws, few_draws : int
        Differences whose cosines are averaged, and how many more where few results differ.
    many : float
        Effective number of differing results from which cosines are significant.
    few : float
        Effective number of differing results that may be explained by chance.
    directions : int
        Directions along which second differences are measured: chance makes one small.
    linear : float
        Second difference relative to the first above which a function rounds some values inside:
        that of independent rounding errors is 1 and more, that of a smooth function nearly 0.
    rounded_inside : float
        Difference in higher precision, in roundoffs of the working precision, from which one of f
        and g may round to it inside.
    gain_exponent : float
        Power of the gain in precision by which rounding errors fall at least: 1 for most
        algorithms, 1/2 at roots.
    lucky : float
        Factor by which a rounding error is hardly ever smaller than others of its kind.
    large : float
        Relative difference that no rounded constant causes: 2**-10 is 10**4 ulps of float32.
    half : float
        Relative difference that rounding to no supported format causes.
    explained : float
        Share of the squared error that a cause explains.
    grid : float
        Bits that all results together leave unused by no accident: one in 2**24.
    plain : float
        Bits of a format that all results together leave unused, as plain numbers do.
    cancelled : float
        Bits of the working precision that all results together leave unused after a cancellation.
    stays : float
        Share of the differences that a small perturbation leaves unchanged: of those of rounding
        errors an eighth are, of those of a different threshold a half.
    biased : float
        Standard errors of a mean relative error that rounding to nearest does not reach.
    rescaled : float
        Factor by which an error falls at least where rescaling avoids an underflow.
    constants : float
        Roundoffs that a result may be off by because of rounded constants.
    amplified_constants : float
        Largest plausible amplification of roundoff in constants: one typed with eleven digits has
        a larger error.
    flips : int
        Perturbations to find results that jump: each jumps in a half of them.
    growth : float
        Growth of a difference with perturbations 2**10 times as large, if these cause it.
    repeats : int
        Calls of each function with the same inputs: 0.75**16 is 1 %, the probability that a change
        in one call of four is not seen.
    seconds : float
        Time for repeated calls: where it does not suffice, there are fewer.
    """

    base: float = 4.0
    single: float = 8.0
    perturbations: int = 8
    above: float = 16.0
    ill_conditioned: float = 100.0
    insensitive: float = 0.1
    far: float = 2.0**-3
    redraw: float = 2.0**10
    of_sums: float = 64.0
    coarse: float = 2.0**8
    persistent: float = 0.9
    unrelated: float = 0.5
    systematic: float = 2.0
    draws: int = 6
    few_draws: int = 12
    many: float = 16.0
    few: float = 4.0
    directions: int = 3
    linear: float = 2.0**-6
    rounded_inside: float = 2.0**-8
    gain_exponent: float = 0.55
    lucky: float = 2.0**8
    large: float = 2.0**-10
    half: float = 0.5
    explained: float = 0.9
    grid: float = 24.0
    plain: float = 12.0
    cancelled: float = 64.0
    stays: float = 0.3
    biased: float = 8.0
    rescaled: float = 10.0
    constants: float = 4.0
    amplified_constants: float = 2.0**16
    flips: int = 32
    growth: float = 2.0**5
    repeats: int = 16
    seconds: float = 1.0


THRESHOLDS = Thresholds()
