"""Import of a site from its files, or from its running resource manager."""
