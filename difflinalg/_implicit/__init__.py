"""Derivatives by the implicit function theorem: the problem, the linear solvers, the rule."""
