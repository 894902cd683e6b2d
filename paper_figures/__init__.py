"""Figures of the literature, each computed and drawn by one command; see the README beside."""
