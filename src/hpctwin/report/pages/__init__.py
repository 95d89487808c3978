"""Reports as pages and folders."""
