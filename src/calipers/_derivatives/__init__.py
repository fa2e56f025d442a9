"""Numerical derivatives: jacobian, differentiate, hessian, jvp, vjp."""
