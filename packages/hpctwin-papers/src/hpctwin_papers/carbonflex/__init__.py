"""CarbonFlex: a cluster provisioned and scheduled by the carbon intensity."""
