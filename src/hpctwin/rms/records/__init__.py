"""Jobs, nodes and events as every resource manager reports them."""
