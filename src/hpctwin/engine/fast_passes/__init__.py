"""Fast paths of scheduling passes where counting nodes is enough."""
