"""Dense decompositions, one file each: equation, primal, rule."""
