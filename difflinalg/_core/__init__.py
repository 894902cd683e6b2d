"""What every rule needs: algebra, named tolerances, checked arguments, result types."""
