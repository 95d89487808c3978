"""Jobs and nodes as PBS's commands print them."""
