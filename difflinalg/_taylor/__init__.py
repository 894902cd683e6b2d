"""Taylor arithmetic: an interpreter of traced programs, and the rules of their operations."""
