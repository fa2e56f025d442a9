"""Checks of derivatives: gradcheck, gradgradcheck."""
