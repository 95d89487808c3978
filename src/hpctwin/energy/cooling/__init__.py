"""Cooling: a reduced model, weather, plants as FMU."""
