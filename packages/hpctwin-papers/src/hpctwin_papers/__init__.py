"""Published results reproduced with hpctwin, one folder per paper."""
