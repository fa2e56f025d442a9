"""Compiled loops over elements, and the decorators of their helper functions."""

from functools import partial
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering
from numba.extending import overload, register_jitable


class _PartOfAnother(JITCodeLibrary):  # type: ignore[misc]  # Numba is untyped
    """
    The code of a function, for those that link it.

    Numba optimises the code of each function with all that it calls, and makes machine code of it:
    of one that is ten calls deep, ten times. What is linked is optimised where it ends up.
    """

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LoweringOfAPart(NativeLowering):  # type: ignore[misc]
    _name = "lowering_of_a_part"

    def run_pass(self, state: Any) -> bool:
        state.flags.no_compile = True
        state.library = _PartOfAnother(state.targetctx.codegen(), state.func_id.func_qualname)
        super().run_pass(state)
        lowered = state["cr"]
        # Numba finds a function by its entry point, a builtin. This one, of its own, nobody calls.
        entry = lowered.fndesc.__sizeof__
        state.targetctx.insert_user_function(entry, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=entry)
        return True


class _CompilerOfParts(CompilerBase):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        parts = PassManager("part")
        for kind, text in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            parts.add_pass(_LoweringOfAPart if kind is NativeLowering else kind, text)
        parts.finalize()
        return [parts]


_OPTIONS = {"no_cfunc_wrapper": True, "pipeline_class": _CompilerOfParts}

jitable = register_jitable(**_OPTIONS)
# For sums whose order is of no matter: else each term would wait for the one before.
in_any_order = register_jitable(**_OPTIONS, fastmath={"reassoc"})
jitable_as = partial(overload, jit_options=_OPTIONS)
