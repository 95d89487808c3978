"""OpenPBS and PBS Professional as resource managers of the twin."""
