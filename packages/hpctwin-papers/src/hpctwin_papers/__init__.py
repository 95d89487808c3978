"""Published results reproduced with hpctwin: a folder for each paper."""
