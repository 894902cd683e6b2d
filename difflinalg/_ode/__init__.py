"""Integrators of ordinary differential equations and the derivatives of their solutions."""
