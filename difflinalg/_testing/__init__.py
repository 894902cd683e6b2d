"""The gradient-check suite; its public names stand in `difflinalg.testing`."""
