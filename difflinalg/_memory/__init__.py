"""Loops whose reverse mode does not store every step: checkpoints, and steps run backwards."""
