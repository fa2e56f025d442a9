"""The numbers by which derivatives are estimated and judged, with their units and sources."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """
    All numbers that decide the error, the status and the verdict of an entry.

    Attributes
    ----------
    multiple : float
        Standard deviations of the noise in the error of a slope. The least error of some fifty
        scales is taken: normal noise exceeds 4 in one of 16 000.
    noise_samples : int
        Number of steps, the shortest at which f changes, from whose residuals the noise is
        estimated: the root mean square of 16 residuals is right within a factor of 1.4. In float32
        there are 22 steps in all.
    few_samples : float
        Factor of the noise that three steps show: Student's t with 6 degrees of freedom exceeds 8
        as often as a normal number 4.
    rounding : float
        Least noise, in spacings of f: rounding to nearest has a standard deviation of 1/sqrt(12).
    pooled_outputs : int
        Least number of noisy outputs whose median noise the others get: two may be exceptions.
    resolving : float
        Largest error, in tolerances, of a value that confirms a claim within one tolerance.
    certain : float
        Errors, in addition to the tolerance, that a claim must be off by to be wrong: one of the
        scale that excludes it, and one as its margin.
    telling : float
        Largest error of a scale that distinguishes two values, as a share of their difference.
    kink : float
        Errors that the gap of a kink exceeds. That of a smooth f is at most 4/3 of its changes to
        shorter scales, which are its error: 1 + 1/4 + 1/16 + ...
    abrupt : float
        Power of the growth of f's departure from a line, per halved step, which the growth at the
        next step exceeds only if f jumps: a departure as the sixth power of t comes to it.
    resolved : float
        Relative error up to which a slope by steps within |x| is resolved, so that longer ones may
        refine it.
    visible : float
        Standard deviations of the noise that a visible change of f exceeds: twice `multiple`, for
        two values.
    negligible : float
        Largest negligible difference, as a share of the tolerance of an entry of natural size: a
        hundred of them are less than one tolerance.
    first : float
        Share of the power of eps that differences of the fourth order reach as relative errors,
        with which the first samples suffice at any scale: 4/5, and 4/6 for second derivatives.
    first_rounding : float
        Spacings of f over a fourth of the size of x, or over its square for second derivatives:
        error of a small slope with which the first samples suffice.
    noisy : float
        Noise, in spacings of f, above which f is noisy: a sum of 10 000 terms may lose as many.
    constant : float
        Share of |x| within which a constant f has the slope 0: half of the digits of float64. At
        shorter steps rounding may hide every change.
    screened : float
        Share of the tolerance that is allowed in screening, whose slopes have no error estimate,
        and that errors after the first samples may have.
    bend : float
        Largest difference of the one-sided slopes in screening, relative to the slope: more may be
        a kink.
    curvature : float
        The least `bend`, in eps**(1/3), the relative step: curvature of 1/|x| makes one.
    screening_noise : float
        Largest error of values in screening, in spacings of f: twice `noisy`, for two values.
    rtol, rtol_single : float
        Default tolerances, relative to the numerical value, in double and in lower precision.
        Differences resolve eps**(2/3), so that four digits of f may cancel, and two in float32.
    smooth : float
        Power of the step below which differences do not converge as those of a smooth f: theirs is
        1 on one side, and 2 on both.
    in_a_row : int
        Least number of scales that have to show it: noise may do so at one or two.
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
    abrupt: float = 3.0
    resolved: float = 0.1
    visible: float = 8.0
    negligible: float = 2.0**-7
    first: float = 0.75
    first_rounding: float = 16.0
    noisy: float = 32.0
    constant: float = 2.0**-26
    screened: float = 0.1
    bend: float = 0.03
    curvature: float = 16.0
    screening_noise: float = 64.0
    rtol: float = 1e-6
    rtol_single: float = 5e-3
    smooth: float = 0.75
    in_a_row: int = 4


THRESHOLDS = Thresholds()
