"""A jax function with a custom_vjp, and what is wrong with another."""

import sys

try:
    import jax
except ImportError:
    sys.exit("this example needs jax: pip install jax")

import jax.numpy as jnp

import calipers

jax.config.update("jax_enable_x64", True)


def with_backward(backward):
    """Return log(1 + exp(x)), stable for large x, with a backward."""

    @jax.custom_vjp
    def softplus(x):
        return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))

    softplus.defvjp(lambda x: (softplus(x), x), lambda x, w: (backward(x, w),))
    return softplus


x = jnp.array([-2.0, 0.3, 5.0])
right = with_backward(lambda x, w: w * jax.nn.sigmoid(x))
wrong = with_backward(lambda x, w: w * jnp.tanh(x))
print(calipers.gradcheck(right, (x,)))
print(calipers.gradcheck(wrong, (x,), raise_exception=False))
