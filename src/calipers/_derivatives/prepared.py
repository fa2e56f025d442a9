"""A Jacobian that is prepared once, and evaluated at many points."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary, proxy

import numpy as np

from .._core.arguments import is_integer
from .._core.arrays import as_dense_array
from .._core.libraries import library_of
from .._core.protocols import ArrayLibrary, NDArray
from .._core.types import PlanOptions
from .._execution.run import Pace, run
from . import sparse
from .compiled import is_current
from .fixed_step import LARGE_BYTES, Columns, ColumnScratch
from .function import REAL, Problem
from .options import Options, options_of
from .solve import (
    like_input,
    prepare,
    require_dense_memory,
    require_representable_steps,
    rows_of,
    shaped,
    steps_of,
)
from .steps import require_inside


class JacobianFunction:
    """
    A function that returns the Jacobian of a function; it is returned by `jacobian_function`.

    Calls take the arguments of the function, ``jac(x, *args, **kwargs)``.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> jac = calipers.jacobian_function(lambda x, a: a * x**2)
    >>> jac(np.array([1.0, 3.0]), 2.0).round(6)
    array([[ 4.,  0.],
           [ 0., 12.]])
    """

    def __init__(
        self,
        f: Callable[..., Any],
        x0: Any = None,
        *,
        args: tuple[Any, ...] = (),
        argnums: Any = 0,
        **options: Any,
    ) -> None:
        if not is_integer(argnums):
            msg = f"argnums must be an int, got {argnums!r}: prepare one function for each argument"
            raise TypeError(msg)
        self._f = f
        named = {"args": args, "argnums": argnums}
        self._options = options_of("jacobian_function", PlanOptions, **named, **options)
        self._position = argnums
        self._plan: _PreparedJacobian | None = None
        if x0 is not None:
            self._plan = self._prepare(as_dense_array(x0, "x0"), x0, self._options.args, {})
            self._plan.check()

    def __repr__(self) -> str:
        """Return the name of the function and the method."""
        name = getattr(self._f, "__name__", type(self._f).__name__)
        return f"<Jacobian of {name}, {self._options.method}>"

    def _prepare(
        self, x: NDArray, argument: Any, others: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "_PreparedJacobian":
        library = library_of(argument)
        x = x if library is None else argument
        kwargs = {**(self._options.kwargs or {}), **kwargs}
        options = replace(self._options, args=others, kwargs=kwargs)
        return _PreparedJacobian(prepare(self._f, x, options), options, library)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the Jacobian at the arguments of the function."""
        k = self._position
        if len(args) <= k:
            passed = f"{len(args)} {'was' if len(args) == 1 else 'were'} passed"
            msg = (
                f"the derivative is with respect to argument {k} of f, counted from 0, but {passed}"
            )
            raise TypeError(msg)
        argument = args[k]
        x = argument if type(argument) is np.ndarray else as_dense_array(argument, "x")
        others = (*args[:k], *args[k + 1 :]) if len(args) > 1 else self._options.args
        plan = self._plan
        if kwargs:  # they belong to this call only
            plan = self._prepare(x, argument, others, kwargs)
        elif plan is None or not plan.serves(x, argument, others):
            plan = self._plan = self._prepare(x, argument, others, kwargs)
        result = plan(x, others, k)
        return result if x is argument else like_input(argument, result)


class _PreparedJacobian:
    """The steps, pattern and scratch of the Jacobians of a function at points of one shape."""

    def __init__(self, problem: Problem, options: Options, library: ArrayLibrary | None) -> None:
        self._problem, self._options, self._library = problem, options, library
        self._steps = steps_of(problem, options)
        self._sparse = None
        if options.sparsity is not None:
            self._sparse = sparse.prepare_sparse(problem, self._steps, options, reused=True)
        else:
            require_dense_memory(problem, options)
        self._dense_needs_base = (
            options.adaptive
            or options.method == "2-point"
            or options.bounds is not None
            or problem.native is None
        )
        self._general = options.adaptive or options.workers is not None or options.progress
        # Then only x differs between calls.
        self._only_x_varies = not (
            self._general or self._dense_needs_base or self._sparse or problem.mode != REAL
        )
        self._count = problem.coordinates
        self._shape = problem.x.shape
        self._dtype = problem.x.real.dtype if problem.imaginary else problem.x.dtype
        self._pace = Pace()
        self._spare: list[ColumnScratch] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_spare": []}  # compiled code, which is of one process

    def serves(self, x: NDArray, argument: Any, others: tuple[Any, ...]) -> bool:
        same = x.shape == self._shape and x.dtype == self._dtype
        return same and library_of(argument) is self._library and self._problem.same_kinds(others)

    @property
    def depends_on_x_alone(self) -> bool:
        """Whether only x differs between calls."""
        return self._only_x_varies

    def is_current(self, f: Any) -> bool:
        """Return True unless Numba has compiled f again, as after a change of globals."""
        return is_current(f, self._problem.native)

    def forget_function(self) -> None:
        """Keep the machine code of f, but not f."""
        self._problem.f = proxy(self._problem.f)

    def check(self) -> None:
        """Verify a sparsity pattern at the point of preparation."""
        if self._sparse is not None:
            self._sparse(self._problem)

    def _needs_base(self) -> bool:
        """Return True if f(x) itself is needed, in addition to perturbed values."""
        if self._sparse is not None:
            return self._sparse.needs_base(self._problem)
        return self._dense_needs_base

    def __call__(self, x: NDArray, others: tuple[Any, ...], position: int) -> Any:
        same_layout = x.dtype == self._dtype and x.flags.c_contiguous
        if self._only_x_varies and not others and same_layout:
            work = Columns(self._problem, self._steps, self._spare, x)
            return shaped(self._problem, run(work, self._count, pace=self._pace)[0])
        problem = self._problem.with_point(
            x, others[:position], others[position:], self._needs_base()
        )
        steps = self._steps
        if problem.mode != REAL and self._sparse is None:  # step lengths depend on x
            steps = steps_of(problem, self._options)
        elif self._options.adaptive:
            require_representable_steps(problem, steps, self._options)
        if steps.lows.size:
            require_inside(problem.x, steps.lows, steps.highs)
        if self._sparse is not None:
            return self._sparse(problem).value
        if self._general:
            options = self._options
            rows = rows_of(problem, steps, options, self._count, report=options.progress)
            return shaped(problem, rows)
        work = Columns(problem, steps, self._spare if steps is self._steps else None)
        rows, _ = run(work, self._count, pace=self._pace)
        return shaped(problem, rows)


# The Jacobians that `jacobian` prepared for each function that Numba compiled, by what they depend
# on. They do not refer to the function, so that it can be deleted.
_of_function: WeakKeyDictionary[Any, dict[Any, _PreparedJacobian]] = WeakKeyDictionary()
_MOST_POINTS = 8  # shapes and dtypes of x for which one function has a prepared Jacobian


def repeated_jacobian(f: Any, x: Any, options: Mapping[str, object]) -> NDArray | None:
    """
    Return the Jacobian of a compiled f that was differentiated before at an x of this shape.

    Return None if it was not, if f was compiled again since, or if options other than the method
    are passed.
    """
    if type(x) is not np.ndarray or not options.keys() <= {"method"}:
        return None
    method = options.get("method", Options.method)
    if type(method) is not str:  # it may have no hash; options refuse it
        return None
    prepared = _of_function.get(f, {}).get((method, x.shape, x.dtype))
    if prepared is None or not x.flags.c_contiguous or not prepared.is_current(f):
        return None
    jacobian: NDArray = prepared(x, (), 0)
    return jacobian


def remember(problem: Problem, options: Options) -> None:
    """Keep the preparation of a Jacobian for `repeated_jacobian`, if the function is compiled."""
    small = problem.base.nbytes * problem.coordinates <= LARGE_BYTES  # else it takes no time
    if problem.native is None or not small or not options.has_defaults:
        return
    of_points = _of_function.setdefault(problem.f, {})
    key = options.method, problem.x.shape, problem.x.dtype
    if key in of_points and of_points[key].is_current(problem.f):
        return
    prepared = _PreparedJacobian(copy(problem), options, None)
    if prepared.depends_on_x_alone:
        if len(of_points) == _MOST_POINTS:
            of_points.clear()
        prepared.forget_function()
        of_points[key] = prepared
