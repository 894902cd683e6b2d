"""Taylor series through programs: the interpreter, and the series of every operation."""
