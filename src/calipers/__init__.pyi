from ._threads import get_num_threads as get_num_threads
from ._threads import num_threads as num_threads
from ._threads import set_num_threads as set_num_threads
from ._warmup import warmup as warmup
from .closeness import allclose as allclose
from .closeness import allfinite as allfinite
from .closeness import array_equal as array_equal
from .closeness import first_nonfinite as first_nonfinite
from .closeness import isclose as isclose
from .comparison import assert_close as assert_close
from .comparison import compare as compare
from .derivatives import Derivative as Derivative
from .derivatives import differentiate as differentiate
from .derivatives import hessian as hessian
from .derivatives import jacobian as jacobian
from .derivatives import jacobian_blocks as jacobian_blocks
from .derivatives import jacobian_function as jacobian_function
from .derivatives import jvp as jvp
from .derivatives import linear_operator as linear_operator
from .derivatives import vjp as vjp
from .reports import ClosenessError as ClosenessError
from .reports import Comparison as Comparison
from .reports import Difference as Difference
from .reports import NestedComparison as NestedComparison
from .tolerances import Tolerance as Tolerance
from .tolerances import default_tolerance as default_tolerance

__version__: str
