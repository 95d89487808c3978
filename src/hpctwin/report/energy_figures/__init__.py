"""Figures of energy, cooling and calibration."""
