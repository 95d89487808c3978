"""CarbonScaler: jobs scaled by the carbon intensity."""
